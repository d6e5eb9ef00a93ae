"""From the bytes of a recording to the samples that a model hears: one channel, a stretch of fixed length."""

import io
import random
import wave
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.errors import DataError

EXTENSIONS = ("wav", "flac", "ogg", "mp3", "aiff", "aif", "opus")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SoundReader:
    """Decodes ``length`` samples of a recording, as numbers from -1 to 1, the mean of its channels.

    Args:
        rate: samples a second that every recording must have.
        length: samples; of a longer recording a stretch is read, a shorter one is followed by silence.
        is_random: whether the stretch is anywhere, as in training; else it is the middle.
    """

    rate: int
    length: int
    is_random: bool = False

    def __call__(self, content: memoryview) -> Tensor:
        recording = open_recording(content)
        with recording.file:
            if recording.rate != self.rate:
                raise ValueError(
                    f"it has {recording.rate:,} samples a second, where data.sample_rate is {self.rate:,}; resample it "
                    "before it is packed"
                )
            spare = max(0, recording.frames - self.length)
            first = random.randint(0, spare) if self.is_random else spare // 2
            wanted = min(self.length, recording.frames)
            sound = recording.read(first, wanted).mean(1, dtype=np.float32)
        if len(sound) < wanted:
            raise ValueError(f"it is cut off after {first + len(sound):,} of {recording.frames:,} samples")
        whole = np.zeros(self.length, np.float32)
        whole[: len(sound)] = sound
        return torch.from_numpy(whole)


@dataclass(frozen=True)
class Recording:
    """An open file of sound, of which any stretch can be read."""

    file: Any
    rate: int
    frames: int

    def read(self, first: int, count: int) -> Array:
        """``count`` samples of every channel from ``first`` on, as frames x channels."""
        if isinstance(self.file, wave.Wave_read):
            self.file.setpos(first)
            return _as_numbers(self.file.readframes(count), self.file.getsampwidth(), self.file.getnchannels())
        self.file.seek(first)
        found: Array = self.file.read(count, dtype="float32", always_2d=True)
        return found


def open_recording(content: memoryview) -> Recording:
    """WAV with whole numbers is read by Python itself, anything else by soundfile."""
    try:
        file = wave.open(io.BytesIO(content))  # noqa: SIM115 (whoever asked for it closes it)
        return Recording(file, file.getframerate(), file.getnframes())
    except (wave.Error, EOFError):
        pass
    try:
        import soundfile
    except ImportError:
        raise DataError(
            "a recording that is not a WAV of whole numbers is decoded with soundfile, which is not installed; run pip "
            "install 'brim[audio]'"
        ) from None
    other = soundfile.SoundFile(io.BytesIO(content))
    return Recording(other, other.samplerate, other.frames)


def _as_numbers(frames: bytes, width: int, channels: int) -> Array:
    """Whole numbers of ``width`` bytes as numbers from -1 to 1."""
    if width == 1:  # the one width without a sign
        numbers = np.frombuffer(frames, np.uint8).astype(np.float32) / 128 - 1
    elif width == 3:
        bytes_of = np.frombuffer(frames, np.uint8).reshape(-1, 3)
        wide = np.zeros((len(bytes_of), 4), np.uint8)
        wide[:, 1:] = bytes_of  # the upper three bytes of four
        numbers = wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    else:
        numbers = np.frombuffer(frames, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    return numbers.reshape(-1, channels)
