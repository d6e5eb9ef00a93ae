"""From the hidden states of a text's tokens to one vector."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brim.errors import ConfigError

AUTO = "auto"


def mean_of_tokens(hidden: Tensor, lengths: Tensor) -> Tensor:
    """The mean over a text's own tokens, without the padding behind them."""
    real = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    # Not a product with 0: what a model makes of padding need not be finite.
    return hidden.masked_fill(~real[..., None], 0.0).sum(1) / lengths[:, None]


def last_token(hidden: Tensor, lengths: Tensor) -> Tensor:
    """The last token of each text: in a decoder the only one that has seen all of it."""
    return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]


def first_token(hidden: Tensor, lengths: Tensor) -> Tensor:
    """The first token: [CLS] of an encoder."""
    return hidden[:, 0]


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_of_tokens,
    "last": last_token,
    "cls": first_token,
}
# The files of sentence-transformers say with which pooling a model was trained.
DECLARED = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last"}


def choose_pooling(wanted: str, declared: str | None, is_causal: bool) -> str:
    """The pooling of an encoder: what was asked for, else what its files ask for, else the mean.

    >>> choose_pooling("auto", None, is_causal=True)
    'mean'
    """
    if wanted != AUTO and wanted not in POOLINGS:
        raise ConfigError(f"pooling={wanted!r} is not known; use one of {', '.join((AUTO, *POOLINGS))}")
    chosen = (declared or "mean") if wanted == AUTO else wanted
    if chosen == "cls" and is_causal:
        raise ConfigError(
            "pooling='cls' takes a text's first token, which in a decoder has seen no other; use 'last' or 'mean'"
        )
    return chosen


def declared_pooling(folder: Path) -> str | None:
    """What ``1_Pooling/config.json`` of sentence-transformers says, where there is one that says one known thing."""
    try:
        said: Any = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
        chosen = [pooling for key, pooling in DECLARED.items() if said.get(key) is True]
    except (OSError, ValueError, AttributeError):
        return None
    return chosen[0] if len(chosen) == 1 else None
