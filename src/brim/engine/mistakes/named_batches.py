"""Batches by keywords that a model cannot take: what they hold tells what was forgotten."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from brim.engine.mistakes.described import described
from brim.errors import ModelError, said


def explained(model: nn.Module, batch: Mapping[Any, Any], error: Exception) -> ModelError | None:
    """What a model has said of a batch, told by what the batch holds: text or lists where it takes tensors."""
    told = why_not(batch) or _lacking(model, batch)
    if told is None:
        return None
    return ModelError(f"{type(model).__name__} cannot take this batch: {told} ({said(error)})")


def why_not(batch: Mapping[Any, Any]) -> str | None:
    """What of a batch no model takes, and what to do; None where everything is a tensor.

    >>> why_not({"text": ["a cat", "a dog"]})
    "'text' is text: tokenize it in the data set or in a collate_fn, and take the column out"
    """
    lists = {key: value for key, value in batch.items() if isinstance(value, list | tuple) and len(value)}
    for key, value in lists.items():
        if isinstance(value[0], str) and "label" in str(key).lower():
            return f"{key!r} is text: give each class a number, in the data set (ds.class_encode_column({key!r}))"
        if isinstance(value[0], str):
            return f"{key!r} is text: tokenize it in the data set or in a collate_fn, and take the column out"
    for key, value in lists.items():
        parts = "tensors" if isinstance(value[0], Tensor) else f"{type(value[0]).__name__}s"
        return (
            f"{key!r} is a list of {parts} and not a tensor: with a data set of Hugging Face's hand over "
            "ds.with_format('torch'), and where samples differ in length a collate_fn that pads them "
            "(DataCollatorWithPadding)"
        )
    return None


def _lacking(model: nn.Module, batch: Mapping[Any, Any]) -> str | None:
    """What a model of transformers' takes first and the batch lacks, has as one row, or needs beside it."""
    first = getattr(model, "main_input_name", None)
    if not isinstance(first, str):
        return None
    if first not in batch and "inputs_embeds" not in batch:
        return f"it has no {first!r}, and is {described(batch)}; name the columns as the model does"
    if isinstance(batch.get(first), Tensor) and batch[first].dim() == 1 and first == "input_ids":
        shape = tuple(batch[first].shape)
        return f"{first!r} has shape {shape}: let the data give a row for each text, of shape (samples, tokens)"
    if getattr(model.config, "is_encoder_decoder", False) and not {"labels", "decoder_input_ids"} & batch.keys():
        return f"a model with a decoder needs 'labels' as well, and it is {described(batch)}"
    return None
