"""From the bytes of a picture to the tensor that a model sees, decoded no larger than needed, cut and scaled."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data.tar.fields import IMAGES, in_mode, open_picture
from brim.errors import ConfigError

EXTENSIONS = (*IMAGES, "bmp", "gif", "pgm", "pbm", "pnm", "tif", "tiff")
OF_TORCHVISION = ("AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide")
AUGMENTATIONS = ("crop", "flip", *OF_TORCHVISION)
SMALLEST_SHARE = 0.35  # of the area of a picture that a random cut keeps
CENTRE = 0.875  # of the shorter side that an evaluation looks at, as 224 of 256
# A JPEG is decoded at a half, a quarter or an eighth of its size where that is still this many times what is needed:
# with 2, the picture that comes out is nearly the one that decoding it whole would give.
SPARE = 2.0

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class PictureReader:
    """Decodes a picture into ``channels`` x ``size`` x ``size`` bytes.

    Args:
        size: of the picture that comes out, in pixels.
        channels: 3, or 1 for grey.
        augment: ``crop`` (a random part, with another aspect) and ``flip``, in training; the centre without.

    >>> PictureReader(32).size
    32
    """

    size: int
    channels: int = 3
    augment: tuple[str, ...] = ()

    def __call__(self, content: memoryview) -> Tensor:
        with open_picture(content) as picture:
            cut = self._cut(picture)
        for name in self.augment:
            if name in OF_TORCHVISION:
                cut = _torchvision(name)()(cut)
        pixels = np.asarray(cut).reshape(self.size, self.size, self.channels)
        if "flip" in self.augment and random.random() < 0.5:
            pixels = pixels[:, ::-1]
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy())

    def _cut(self, picture: Any) -> Any:
        """The part that is looked at, scaled."""
        from PIL import Image

        width, height = picture.size
        box = random_box(width, height) if "crop" in self.augment else centre_box(width, height)
        shrink = SPARE * self.size / min(box[2] - box[0], box[3] - box[1])
        mode = "RGB" if self.channels == 3 else "L"
        picture.draft(mode, (math.ceil(width * shrink), math.ceil(height * shrink)))  # of a JPEG; no effect on others
        picture = in_mode(picture, mode)
        if picture.size != (width, height):
            across, down = picture.width / width, picture.height / height
            box = box[0] * across, box[1] * down, box[2] * across, box[3] * down
        return picture.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)


def centre_box(width: int, height: int) -> Box:
    """The middle of a picture, a square.

    >>> centre_box(16, 8)
    (4.5, 0.5, 11.5, 7.5)
    """
    side = CENTRE * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def random_box(width: int, height: int) -> Box:
    """A part of a picture: a share of its area from 35 % on, its sides as 3 to 4 up to 4 to 3."""
    for _ in range(10):
        area = width * height * random.uniform(SMALLEST_SHARE, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = math.sqrt(area * aspect), math.sqrt(area / aspect)
        if across <= width and down <= height:
            left, top = random.uniform(0, width - across), random.uniform(0, height - down)
            return left, top, left + across, top + down
    return centre_box(width, height)


def check_augmentations(names: tuple[str, ...]) -> None:
    """Refuse one that there is not, before any data is read."""
    for name in names:
        if name not in AUGMENTATIONS:
            raise ConfigError(f"there is no augmentation {name!r}; there are {', '.join(AUGMENTATIONS)}")
        if name in OF_TORCHVISION:
            _torchvision(name)


def _torchvision(name: str) -> Callable[[], Callable[[Any], Any]]:
    try:
        from torchvision.transforms import v2
    except ImportError:
        raise ConfigError(
            f"the augmentation {name} is torchvision's, which is not installed; run pip install torchvision, or use "
            "crop and flip"
        ) from None
    made: Callable[[], Callable[[Any], Any]] = getattr(v2, name)
    return made
