import io
import random
import sys
import types

import numpy as np
import pytest
import torch
from helpers.pictures import picture_bytes
from PIL import Image

from brim.errors import ConfigError, DataError
from brim.workloads.classifier.pictures import PictureReader, centre_box, check_augmentations, random_box


def read(content, *arguments, **options):
    return PictureReader(*arguments, **options)(memoryview(content))


def test_a_picture_comes_out_as_bytes_of_the_size_asked_for():
    tensor = read(picture_bytes(size=(50, 30)), 16)
    assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == ((3, 16, 16), torch.uint8, True)


def test_it_is_what_decoding_whole_cutting_and_scaling_gives():
    draw = np.random.default_rng(0)
    smooth = Image.fromarray(draw.integers(0, 255, (12, 16, 3), np.uint8)).resize((512, 384), Image.Resampling.BICUBIC)
    content = io.BytesIO()
    smooth.save(content, "jpeg", quality=95)
    plain = Image.open(content).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR, box=centre_box(512, 384))
    difference = read(content.getvalue(), 32).permute(1, 2, 0).int() - torch.from_numpy(np.array(plain)).int()
    assert difference.abs().float().mean() < 1.0  # it was decoded at a quarter of its size
    lossless = io.BytesIO()
    smooth.save(lossless, "png")
    plain = smooth.resize((32, 32), Image.Resampling.BILINEAR, box=centre_box(512, 384))
    assert torch.equal(read(lossless.getvalue(), 32).permute(1, 2, 0), torch.from_numpy(np.array(plain)))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("jpeg", "L"), ("jpeg", "CMYK"), ("png", "RGBA"), ("png", "LA"), ("png", "P"), ("png", "1"), ("webp", "RGB"),
     ("gif", "P"), ("bmp", "RGB"), ("ppm", "RGB"), ("tiff", "RGB")],
)  # fmt: skip
def test_any_kind_of_picture_has_the_channels_asked_for(kind, mode):
    content = picture_bytes(kind=kind, mode=mode)
    assert read(content, 16).shape == (3, 16, 16)
    assert read(content, 16, channels=1).shape == (1, 16, 16)


def test_16_bits_grey_keep_their_shades():
    shades = np.tile(np.linspace(0, 65535, 64).astype(np.uint16), (64, 1))
    content = io.BytesIO()
    Image.fromarray(shades).save(content, "png")
    row = read(content.getvalue(), 64)[0, 32].tolist()
    assert row == sorted(row)
    assert row[32] == pytest.approx(128, abs=4)


def test_a_cut_and_a_flip_are_drawn_from_pythons_generator():
    content = picture_bytes(size=(40, 40))
    random.seed(3)
    drawn = [read(content, 16, augment=("crop", "flip")) for _ in range(4)]
    random.seed(3)
    again = [read(content, 16, augment=("crop", "flip")) for _ in range(4)]
    assert all(map(torch.equal, drawn, again))
    assert len({one.numpy().tobytes() for one in drawn}) > 1


def test_a_flip_is_a_mirror_image():
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:, 16:] = 250
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    random.seed(0)
    sides = {tuple(read(content.getvalue(), 8, augment=("flip",))[0, 4, ::7].tolist()) for _ in range(20)}
    assert sides == {(0, 250), (250, 0)}


def test_boxes_lie_within_the_picture():
    random.seed(0)
    for width, height in ((1, 1), (3, 500), (640, 480)):
        for _ in range(50):
            left, top, right, bottom = random_box(width, height)
            assert 0 <= left < right <= width + 1e-9
            assert 0 <= top < bottom <= height + 1e-9


def test_without_pillow_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"Pillow, which is not installed; run pip install 'brim\[images\]'"):
        read(b"", 8)


def test_augmentations_of_torchvision_need_it_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.transforms", None)
    with pytest.raises(ConfigError, match="RandAugment is torchvision's, which is not installed"):
        check_augmentations(("crop", "RandAugment"))
    with pytest.raises(ConfigError, match="no augmentation 'rotate'; there are crop, flip"):
        check_augmentations(("rotate",))


def test_augmentations_of_torchvision_see_the_picture_that_was_cut(monkeypatch):
    seen = []

    class RandAugment:
        def __call__(self, picture):
            seen.append(picture.size)
            return Image.new("RGB", picture.size, (1, 2, 3))

    transforms = types.ModuleType("torchvision.transforms")
    transforms.v2 = types.SimpleNamespace(RandAugment=RandAugment)
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.transforms", transforms)
    tensor = read(picture_bytes(), 16, augment=("RandAugment",))
    assert (seen, tensor[:, 0, 0].tolist()) == ([(16, 16)], [1, 2, 3])
