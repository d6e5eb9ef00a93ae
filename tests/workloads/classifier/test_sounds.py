import random
import sys
import types

import numpy as np
import pytest
import torch
from helpers.pictures import wav_bytes

from brim.errors import DataError
from brim.workloads.classifier.sounds import SoundReader

TONE = np.sin(np.arange(4000) / 7)


def read(content, rate=8000, length=1000, is_random=False):
    return SoundReader(rate, length, is_random)(memoryview(content))


@pytest.mark.parametrize(("width", "rounding"), [(1, 2e-2), (2, 1e-4), (3, 1e-6), (4, 1e-6)])
@pytest.mark.parametrize("channels", [1, 2])
def test_whole_numbers_of_any_width_become_numbers_from_minus_1_to_1(width, rounding, channels):
    heard = read(wav_bytes(TONE[:1000], width=width, channels=channels))
    assert heard.dtype == torch.float32
    np.testing.assert_allclose(heard.numpy(), TONE[:1000], atol=rounding)


def test_a_longer_sound_is_heard_in_its_middle_and_in_training_anywhere():
    content = wav_bytes(TONE)
    np.testing.assert_allclose(read(content).numpy(), TONE[1500:2500], atol=1e-4)
    random.seed(0)
    heard = {read(content, is_random=True).numpy().tobytes() for _ in range(5)}
    assert len(heard) > 1


def test_a_shorter_sound_is_followed_by_silence():
    heard = read(wav_bytes(TONE[:600]))
    np.testing.assert_allclose(heard[:600].numpy(), TONE[:600], atol=1e-4)
    assert heard[600:].abs().max() == 0


def test_another_rate_and_a_cut_file_are_refused():
    with pytest.raises(ValueError, match=r"it has 44,100 samples a second, where data\.sample_rate is 8,000"):
        read(wav_bytes(TONE, rate=44_100))
    with pytest.raises(ValueError, match="it is cut off after 478 of 900 samples"):
        read(wav_bytes(TONE[:900])[:1000])


def test_other_formats_need_soundfile(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"soundfile, which is not installed; run pip install 'brim\[audio\]'"):
        read(b"fLaC" + bytes(100))


def test_other_formats_are_read_by_soundfile(monkeypatch):
    class SoundFile:
        samplerate, frames = 8000, 4000

        def __init__(self, file):
            self.at = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def seek(self, first):
            self.at = first

        def read(self, count, dtype, always_2d):
            assert (dtype, always_2d) == ("float32", True)
            return TONE[self.at : self.at + count, None].astype(np.float32)

    stub = types.ModuleType("soundfile")
    stub.SoundFile = SoundFile
    monkeypatch.setitem(sys.modules, "soundfile", stub)
    np.testing.assert_allclose(read(b"fLaC" + bytes(100)).numpy(), TONE[1500:2500], atol=1e-6)
