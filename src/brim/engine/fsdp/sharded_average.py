"""The moving average of sharded weights: it is taken number by number, so every rank averages what it holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from brim.engine.fsdp.shards import ShardedModel
from brim.engine.state.sharded_tensors import copy_part, is_sharded, local_part, part_like, spread, whole_on_host
from brim.engine.state.weight_average import average_dtype, check_saved, swap_in, swap_out, take_in
from brim.errors import ConfigError


class ShardedAverage:
    """What :class:`WeightAverage` is to a model that every rank has whole.

    Parts are plain tensors by name, and weights are asked of the shards of now: both outlive it that these are built
    again, after memory ran out, also while an evaluation has the average in their place.
    """

    def __init__(self, shards: ShardedModel, decay: float) -> None:
        self.shards = shards
        self.decay = decay
        self._steps = 0
        self._is_in_place = False
        self._parts: dict[str, Tensor] = {
            name: part.to(average_dtype(part.dtype), copy=True) for name, part in self._weights().items()
        }

    @property
    def module(self) -> nn.Module:
        raise ConfigError(
            "strategy='fsdp' keeps the averaged weights in shards, so there is no ema_model during a run; evaluations "
            "see them, and trainer.model has them after fit"
        )

    @property
    def has_begun(self) -> bool:
        return self._steps > 0

    def update(self, model: nn.Module) -> None:
        """After an optimizer step, on all ranks."""
        weights = self._weights()
        if self.has_begun:
            take_in(list(self._parts.values()), [weights[name] for name in self._parts], self.decay)
        else:
            for name, part in self._parts.items():
                part.copy_(weights[name])
        self._steps += 1

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """The shards hold the averaged weights meanwhile, and what is gathered from them is the averaged model."""
        if not self.has_begun or self._is_in_place:  # by an evaluation within an evaluation
            yield
            return
        self.shards.reshard()  # what was gathered before is of other weights
        kept = swap_in(self._pairs())
        self._is_in_place = True
        try:
            yield
        finally:
            self._is_in_place = False
            if self.shards.is_built:  # else it was given up in the middle of being built again
                self.shards.reshard()
                swap_out(self._pairs(), kept)

    def copy_to(self, model: nn.Module) -> None:
        """Let the shards have the averaged weights, for good."""
        if self.has_begun:
            self.shards.reshard()
            for weight, part in self._pairs():
                copy_part(weight, part)

    def state(self, model: nn.Module, keep: bool = True) -> dict[str, Any]:
        """For a checkpoint: as one process would have it, on the host where it is to be kept. All ranks take part."""
        whole: dict[str, Any] = {}
        for name, parameter in self.shards.parameters.items():
            part = self._parts[name]
            whole[name] = whole_on_host(spread(part, parameter) if is_sharded(parameter) else part, keep)
        return {"decay": self.decay, "steps": self._steps, "weights": whole}

    @torch.no_grad()
    def restore(self, saved: dict[str, Any], model: nn.Module) -> None:
        """Become what :meth:`state` gave, on as many ranks as that may have been.

        Of frozen weights one process writes none: the average is the weight.
        """
        check_saved(saved, list(self._parts), self.decay)
        for name, parameter in self.shards.parameters.items():
            whole = saved["weights"].get(name)
            self._parts[name].copy_(local_part(parameter.detach() if whole is None else part_like(whole, parameter)))
        self._steps = int(saved["steps"])

    def let_go(self) -> None:
        """The run is over: the user's model has what it is to have of it."""
        self._parts, self._steps = {}, 0

    def _weights(self) -> dict[str, Tensor]:
        return {name: local_part(parameter.detach()) for name, parameter in self.shards.parameters.items()}

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        weights = self._weights()
        return [(weights[name], part) for name, part in self._parts.items()]
