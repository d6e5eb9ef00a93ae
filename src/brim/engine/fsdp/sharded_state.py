"""The training state of a sharded model: whole in a checkpoint, in shards everywhere else."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from brim.engine.checkpoints.checkpoint import TrainingState
from brim.engine.checkpoints.progress import Progress
from brim.engine.fsdp.sharded_average import ShardedAverage
from brim.engine.state.host_copy import HostModel
from brim.engine.state.sharded_tensors import part_like, whole_on_host
from brim.engine.state.weight_average import KeepsAverage


@dataclass
class ShardedState(TrainingState):
    """A checkpoint of it is one that a single process could have written, and the other way round."""

    _weights: dict[str, Tensor] = field(default_factory=dict)
    _optimizer: dict[str, Any] = field(default_factory=dict)
    _average: dict[str, Any] = field(default_factory=dict)

    def gather_state(self) -> None:
        """All ranks hand their parts to the first, which writes."""
        super().gather_state()
        self.gather_weights()
        self._optimizer = whole_on_host(self.optimizer.state_dict(), self.ranks.is_first)
        if isinstance(self.ema, ShardedAverage):
            self._average = self.ema.gather(self.ranks.is_first)

    def gather_weights(self) -> None:
        self._weights = whole_on_host(dict(self.model.state_dict()), self.ranks.is_first)

    def weights(self) -> nn.Module | HostModel:
        return HostModel.holding(self._weights)

    def optimizer_state(self) -> dict[str, Any]:
        return self._optimizer

    def average_state(self, ema: KeepsAverage) -> dict[str, Any]:
        return self._average

    def forget_copies(self) -> None:
        self._weights, self._optimizer, self._average = {}, {}, {}

    def restore(self, tensors: dict[str, Any], progress: Progress) -> list[str]:
        told = self.take_up_parameters(tensors)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        saved = tensors["optimizer"]
        parts = {
            number: {
                key: part_like(value, parameters[number]) if isinstance(value, Tensor) else value
                for key, value in state.items()
            }
            for number, state in saved["state"].items()
        }
        return told + super().restore({**tensors, "optimizer": {**saved, "state": parts}}, progress)
