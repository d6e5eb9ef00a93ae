"""Small pictures and sounds in shards, of classes that are easy to tell apart."""

import io
import wave

import numpy as np
from PIL import Image

from brim.data import pack

COLOURS = {"blue": (20, 30, 220), "green": (30, 200, 40), "red": (210, 40, 30)}


def picture_bytes(colour=(200, 30, 30), size=(24, 20), kind="jpeg", mode="RGB"):
    """A picture of one colour, brighter towards the bottom."""
    shade = np.linspace(0.6, 1.0, size[1])[:, None, None]
    pixels = (np.ones((size[1], size[0], 3)) * shade * np.array(colour)).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(content, kind)
    return content.getvalue()


def wav_bytes(samples, rate=8000, width=2, channels=1):
    """A WAV file of numbers from -1 to 1, the same in each channel."""
    scaled = np.asarray(samples, np.float64) * (2 ** (8 * width - 1) - 1)
    whole = np.repeat(scaled[:, None], channels, 1).astype(np.int64)
    if width == 1:
        frames = (whole + 128).astype(np.uint8).tobytes()
    else:
        frames = whole.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)
    return content.getvalue()


def coloured_samples(count, label="cls"):
    """Pictures whose class is their colour, by number (``cls``) or by name (``txt``)."""
    names = sorted(COLOURS)
    for number in range(count):
        name = names[number % 3]
        value = number % 3 if label == "cls" else name
        yield {"__key__": f"{number:04d}", "jpg": picture_bytes(COLOURS[name], (20 + number % 5, 24)), label: value}


def coloured_shards(folder, count=24, per_shard=7, label="cls"):
    """Shards of those; returns the folder."""
    pack(coloured_samples(count, label), folder, samples_per_shard=per_shard)
    return folder
