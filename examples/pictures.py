"""Pictures to try shards with, six shapes in six folders: python examples/pictures.py [FOLDER] [SAMPLES]

Writes FOLDER/train and FOLDER/valid (by default in pictures), JPEGs of many sizes as cameras leave them. Then

    brim data pack pictures/train shards/train --labels folder --shuffle 0
    brim data pack pictures/valid shards/valid --labels folder
    brim train examples/classifier.yaml
"""

import math
import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

Corner = tuple[float, float]
SHAPES = {"circle": 60, "hexagon": 6, "line": 2, "square": 4, "star": 5, "triangle": 3}  # with how many corners


def polygon(corners: int, x: float, y: float, radius: float, angle: float) -> list[Corner]:
    turns = [angle + 2 * math.pi * number / corners for number in range(corners)]
    return [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]


def outline(shape: str, x: float, y: float, radius: float, angle: float) -> list[Corner]:
    outer = polygon(SHAPES[shape], x, y, radius, angle)
    if shape != "star":
        return outer
    inner = polygon(5, x, y, 0.4 * radius, angle + math.pi / 5)
    return [corner for pair in zip(outer, inner, strict=True) for corner in pair]


def draw(shape: str, drawn: random.Random) -> Image.Image:
    """One shape of some colour, anywhere and turned, on a background of noise."""
    width, height = drawn.randint(120, 360), drawn.randint(120, 360)
    noise = Image.effect_noise((width // 8, height // 8), 60).resize((width, height), Image.Resampling.BICUBIC)
    background, colour = (tuple(drawn.randint(0, 255) for _ in range(3)) for _ in range(2))
    picture = Image.blend(Image.merge("RGB", (noise,) * 3), Image.new("RGB", (width, height), background), 0.5)
    radius = drawn.uniform(0.25, 0.45) * min(width, height)
    x, y = drawn.uniform(radius, width - radius), drawn.uniform(radius, height - radius)
    corners = outline(shape, x, y, radius, drawn.uniform(0, 2 * math.pi))
    ImageDraw.Draw(picture).polygon(corners, fill=colour, outline=colour, width=6)
    return picture.filter(ImageFilter.GaussianBlur(drawn.uniform(0, 1.5)))


if __name__ == "__main__":
    folder, samples = Path(*sys.argv[1:2] or ["pictures"]), int((sys.argv[2:] or ["3000"])[0])
    for part, count in (("train", samples), ("valid", samples // 5)):
        drawn = random.Random(part)
        for number in range(count):
            shape = sorted(SHAPES)[number % len(SHAPES)]
            (folder / part / shape).mkdir(parents=True, exist_ok=True)
            draw(shape, drawn).save(folder / part / shape / f"{number:06d}.jpg", quality=drawn.randint(70, 95))
        print(f"{count} pictures in {folder / part}")
