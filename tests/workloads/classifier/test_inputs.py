import numpy as np
import pytest
import torch
from helpers.pictures import picture_bytes, wav_bytes

from brim.data import Shards, pack
from brim.errors import DataError
from brim.workloads.classifier.inputs import InputSpec, input_spec
from brim.workloads.classifier.pictures import PictureReader
from brim.workloads.classifier.sample_fields import choose_fields
from brim.workloads.classifier.sounds import SoundReader

TONE = np.sin(np.arange(800) / 7)


def found(folder, samples, **settings):
    pack(samples, folder)
    shards = Shards(folder, decode=False)
    fields = choose_fields(shards.fields, None, None)
    return input_spec(shards, fields, **{"size": 32, "channels": 3, "rate": None, "seconds": 0.5, **settings})


def test_pictures_are_what_the_settings_say(tmp_path):
    spec = found(tmp_path, [{"jpg": picture_bytes(), "cls": 0}], channels=1)
    assert spec == InputSpec("picture", (1, 32, 32))
    assert spec.reader(("flip",)) == PictureReader(32, 1, ("flip",))
    assert spec.bytes == 32 * 32


def test_sounds_have_the_rate_of_the_first_that_can_be_read(tmp_path):
    spec = found(tmp_path, [{"cls": 1}, {"wav": wav_bytes(TONE, rate=6000), "cls": 1}])
    assert (spec.rate, spec.shape, spec.bytes) == (6000, (3000,), 12_000)
    assert spec.reader(("crop",)) == SoundReader(6000, 3000, is_random=True)
    assert spec.reader() == SoundReader(6000, 3000, is_random=False)


def test_arrays_all_have_the_shape_of_the_first(tmp_path):
    spec = found(tmp_path, [{"npy": torch.zeros(5, 7), "cls": 0}])
    assert (spec.shape, spec.dtype) == ((1, 5, 7), torch.float32)
    pack([{"npy": torch.zeros(5, 8), "cls": 0}], tmp_path / "other")
    content = memoryview(bytearray(Shards(tmp_path / "other", decode=False)[0]["npy"]))
    with pytest.raises(ValueError, match=r"it is \(1, 5, 8\) of torch.float32, where the first is \(1, 5, 7\)"):
        spec.reader()(content)


def test_arrays_that_are_no_pictures_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"its shape \(4,\) is neither channels x height x width nor height x width"):
        found(tmp_path, [{"npy": torch.zeros(4), "cls": 0}])
