"""Blocks of a traced model that are computed again in the backward pass, as the engine would have them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from brim.errors import ModelError
from brim.memory.trace.handed_objects import held_by, repeated
from brim.model_blocks import BlockChoice, chosen_blocks


def recompute_blocks(model: nn.Module, choice: BlockChoice) -> None:
    """Checkpoint the blocks that the choice means, in a model that belongs to the forecast.

    Raises:
        ModelError: where all blocks are asked for and the model has none.
    """
    blocks = chosen_blocks(model, choice)
    if choice is True and not blocks:
        raise ModelError("the model has no lists of blocks to recompute; name modules (checkpointing=['encoder'])")
    for block in blocks.values():
        block.forward = _recomputed(block.forward)


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*args: Any, **kwargs: Any) -> Any:
        handed = [*args, *kwargs.values()]

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), repeated(held_by(handed), handed)

        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return compute
