"""What a model reads of the items: encodings of their texts, made once, or random vectors as wide."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brim.errors import ConfigError, to_stderr
from brim.workloads.recommender.encoders.kept_encodings import KeptEncodings, encodings_folder
from brim.workloads.recommender.encoders.pooling import AUTO
from brim.workloads.recommender.text_encoder import TextEncoder

CONTROLS = ("ids", "random")


def item_encodings(
    n_items: int,
    dataset: Any,
    gpt2: str,
    control: str | None = None,
    encodings: Tensor | None = None,
    pooling: str = AUTO,
    encodings_dir: str | Path | None = AUTO,
) -> Tensor:
    """The encodings of the items' texts, or random vectors as wide where ``control`` says so.

    Args:
        n_items: how many items there must be.
        dataset: has ``item_texts()``, or is a mapping with the list ``items``.
        gpt2: the encoder: ``"tiny"``, a local folder or a hub name.
        control: ``"random"`` for random vectors.
        encodings: those that are there already; nothing is read then.
        pooling: how one vector is made of a text's tokens.
        encodings_dir: where they are kept on disk: ``"auto"`` for the usual folder, None for nowhere.
    """
    if control not in (None, *CONTROLS):
        raise ConfigError(f"control={control!r} is unknown; use one of {', '.join(map(repr, CONTROLS))}, or None")
    if encodings is None:
        if dataset is None:
            raise ConfigError("dataset= is needed: its item_texts() are what the encoder reads; or control='ids'")
        texts = list(dataset["items"]) if isinstance(dataset, Mapping) else dataset.item_texts()
        encodings = encode_texts(texts, gpt2, pooling, encodings_dir)
    if len(encodings) != n_items:
        raise ConfigError(f"there are texts of {len(encodings)} items, and the training data is of {n_items}")
    return torch.randn_like(encodings) if control == "random" else encodings


def encode_texts(texts: list[str], gpt2: str, pooling: str, encodings_dir: str | Path | None) -> Tensor:
    """A row for each text. Each distinct one is read once, and never again while it is kept on disk."""
    encoder = TextEncoder(gpt2, pooling)
    folder = encodings_folder(encodings_dir, gpt2)
    # In the order that the towers of the other recommender have, so that both find the same entry.
    distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    kept = None if folder is None else KeptEncodings(folder, to_stderr)
    encodings = encoder.encode_once(encoder.tokenize(list(distinct)), kept)
    return encodings[[distinct[text] for text in texts]]
