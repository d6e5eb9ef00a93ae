"""The state of a sharded model, gathered for a checkpoint: whole there, in shards everywhere else."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from brim.engine.state.sharded_tensors import part_like, whole_on_host
from brim.engine.state.weight_average import KeepsAverage


class GatheredState:
    """What all ranks hand to the first, which writes what a single process could have written.

    All ranks gather at the same time; those that do not ``keep`` it hold nothing.
    """

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}
        self.optimizer: dict[str, Any] = {}
        self.average: dict[str, Any] = {}

    def gather_weights(self, model: nn.Module, keep: bool) -> None:
        self.weights = whole_on_host(dict(model.state_dict()), keep)

    def gather_optimizer(self, optimizer: Optimizer, keep: bool) -> None:
        self.optimizer = whole_on_host(optimizer.state_dict(), keep)

    def gather_average(self, ema: KeepsAverage | None, model: nn.Module, keep: bool) -> None:
        self.average = {} if ema is None else ema.state(model, keep)

    def forget(self) -> None:
        self.weights, self.optimizer, self.average = {}, {}, {}


def optimizer_parts(saved: dict[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """This rank's part of an optimizer's whole state, spread as its parameters are."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parts = {
        number: {
            key: part_like(value, parameters[number]) if isinstance(value, Tensor) else value
            for key, value in state.items()
        }
        for number, state in saved["state"].items()
    }
    return {**saved, "state": parts}
