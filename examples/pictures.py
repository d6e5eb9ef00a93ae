"""Pictures to try shards with, six shapes in six folders: python examples/pictures.py pictures

Writes pictures/train and pictures/valid, JPEGs of many sizes as cameras leave them. Then

    brim data pack pictures/train shards/train --labels folder --shuffle 0
    brim data pack pictures/valid shards/valid --labels folder
    brim train examples/classifier.yaml
"""

import argparse
import math
import random
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

Corner = tuple[float, float]


def polygon(corners: int) -> Callable[[float, float, float, float], list[Corner]]:
    """A function of centre, radius and angle that gives the corners."""

    def at(x: float, y: float, radius: float, angle: float) -> list[Corner]:
        turns = [angle + 2 * math.pi * number / corners for number in range(corners)]
        return [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]

    return at


def star(x: float, y: float, radius: float, angle: float) -> list[Corner]:
    inner, outer = polygon(5)(x, y, 0.4 * radius, angle + math.pi / 5), polygon(5)(x, y, radius, angle)
    return [corner for pair in zip(outer, inner, strict=True) for corner in pair]


SHAPES = {
    "circle": polygon(60),
    "hexagon": polygon(6),
    "line": polygon(2),
    "square": polygon(4),
    "star": star,
    "triangle": polygon(3),
}


def draw(shape: str, drawn: random.Random) -> Image.Image:
    """One shape of some colour, anywhere and turned, on a background of noise."""
    width, height = drawn.randint(120, 360), drawn.randint(120, 360)
    noise = Image.effect_noise((width // 8, height // 8), 60).resize((width, height), Image.Resampling.BICUBIC)
    tint = Image.new("RGB", (width, height), tuple(drawn.randint(0, 255) for _ in range(3)))
    picture = Image.blend(Image.merge("RGB", (noise,) * 3), tint, 0.5)
    radius = drawn.uniform(0.25, 0.45) * min(width, height)
    x, y = drawn.uniform(radius, width - radius), drawn.uniform(radius, height - radius)
    corners = SHAPES[shape](x, y, radius, drawn.uniform(0, 2 * math.pi))
    colour = tuple(drawn.randint(0, 255) for _ in range(3))
    ImageDraw.Draw(picture).polygon(corners, fill=colour, outline=colour, width=6)
    return picture.filter(ImageFilter.GaussianBlur(drawn.uniform(0, 1.5)))


def make(folder: Path, samples: int, seed: int) -> None:
    """Write ``samples`` pictures into a sub-folder for each shape."""
    drawn = random.Random(seed)
    for number in range(samples):
        shape = sorted(SHAPES)[number % len(SHAPES)]
        (folder / shape).mkdir(parents=True, exist_ok=True)
        draw(shape, drawn).save(folder / shape / f"{number:06d}.jpg", quality=drawn.randint(70, 95))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=3000)
    given = parser.parse_args()
    make(given.folder / "train", given.samples, seed=1)
    make(given.folder / "valid", given.samples // 5, seed=2)
    print(f"{given.samples} pictures in {given.folder / 'train'}, {given.samples // 5} in {given.folder / 'valid'}")
