"""What a classifier takes in: pictures, sounds or arrays of one shape, and how they are read from a sample."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brim.data.tar.fields import decode_npy
from brim.data.tar.shards import DamagedSample, Shards
from brim.errors import DataError
from brim.workloads.classifier.pictures import PictureReader
from brim.workloads.classifier.sample_fields import Kind, SampleFields
from brim.workloads.classifier.sounds import SoundReader, open_recording

Reader = Callable[[memoryview], Tensor]
TRIED = 100  # samples, until one of them can be read


@dataclass(frozen=True)
class InputSpec:
    """What one sample is: ``shape`` is channels x height x width of a picture or an array, or the samples of a sound.

    >>> InputSpec("picture", (3, 64, 64)).bytes
    12288
    """

    kind: Kind
    shape: tuple[int, ...]
    rate: int = 0  # of sounds, samples a second
    dtype: torch.dtype = torch.uint8

    @property
    def bytes(self) -> int:
        """Of one decoded sample."""
        return math.prod(self.shape) * self.dtype.itemsize

    def reader(self, augment: tuple[str, ...] = ()) -> Reader:
        """From the bytes of a field to a tensor; ``augment`` names what is drawn at random, in training."""
        if self.kind == "picture":
            return PictureReader(self.shape[1], self.shape[0], augment)
        if self.kind == "sound":
            return SoundReader(self.rate, self.shape[0], is_random="crop" in augment)
        return ArrayReader(self.shape, self.dtype)


@dataclass(frozen=True)
class ArrayReader:
    """Decodes an array: channels x height x width, or height x width; all have one shape and one type."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __call__(self, content: memoryview) -> Tensor:
        array = _with_channels(decode_npy(content))
        if tuple(array.shape) != self.shape or array.dtype != self.dtype:
            raise ValueError(
                f"it is {tuple(array.shape)} of {array.dtype}, where the first is {self.shape} of {self.dtype}"
            )
        return array


def input_spec(
    shards: Shards, fields: SampleFields, size: int, channels: int, rate: int | None, seconds: float
) -> InputSpec:
    """What the samples are, by the settings and, for what is not set, by the first that can be read."""
    if fields.kind == "picture":
        return InputSpec("picture", (channels, size, size))
    if fields.kind == "sound":
        rate = rate if rate is not None else _first(shards, fields, lambda content: open_recording(content).rate)
        return InputSpec("sound", (max(1, round(rate * seconds)),), rate, torch.float32)
    array = _first(shards, fields, lambda content: _with_channels(decode_npy(content)))
    return InputSpec("array", tuple(array.shape), dtype=array.dtype)


def _with_channels(array: Tensor) -> Tensor:
    array = array.unsqueeze(0) if array.dim() == 2 else array
    if array.dim() != 3 or array.numel() == 0:
        raise ValueError(f"its shape {tuple(array.shape)} is neither channels x height x width nor height x width")
    return array


def _first(shards: Shards, fields: SampleFields, look: Callable[[memoryview], Any]) -> Any:
    """What ``look`` sees in the first sample that can be read."""
    raw = shards.with_fields(fields.inputs, decode=dict.fromkeys(fields.inputs, look), may_lack=True)
    trouble: Exception | None = None
    for number in range(min(TRIED, len(raw))):
        try:
            sample = raw[number]
        except DamagedSample as error:
            trouble = trouble or error
            continue
        if found := [sample[field] for field in fields.inputs if field in sample]:
            return found[0]
    raise DataError(str(trouble or f"none of the first {TRIED} samples has one of {', '.join(fields.inputs)}"))
