"""What a metric sees of a batch: what the model returned in the pass that gave the loss, and the batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from brim.data import Batch
from brim.engine.calling.model_call import arguments_of
from brim.engine.components.loss_count import is_named_label
from brim.errors import ConfigError, a_type

TARGETS = ("labels", "label", "targets", "target", "y")
MOST_NAMES = 4
WRITE_A_FUNCTION = "pass a function instead: metrics={'name': lambda outputs, batch: ...}"


@dataclass(frozen=True)
class SeenBatch:
    """A batch, or a part of one, after its loss was computed."""

    model: nn.Module
    loss_fn: Any
    outputs: Any
    batch: Batch
    samples: int

    @property
    def prediction(self) -> Tensor:
        """The tensor among the outputs that is compared with the target."""
        outputs = self.outputs
        if isinstance(outputs, Tensor):
            return outputs
        logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
        if isinstance(logits, Tensor):
            return logits
        raise ConfigError(
            f"a metric by name compares the model's output with the target, and the output is a "
            f"{type(outputs).__name__} without logits; {WRITE_A_FUNCTION}"
        )

    @property
    def target(self) -> Tensor:
        """The tensor of the batch that holds the target: the second of a pair, or the one that is called so."""
        batch = self.batch
        if isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor):
            return batch[1]
        named = self._named_targets(batch) if isinstance(batch, Mapping) else []
        target: Any = batch[named[0]] if len(named) == 1 else None
        if isinstance(target, Tensor):
            return target
        if len(named) > 1:
            told = " or ".join(repr(key) for key in named[:MOST_NAMES])
            raise ConfigError(
                f"which of a batch's parts is the target of a metric is not known, {told}; {WRITE_A_FUNCTION}"
            )
        raise ConfigError(
            f"which part of a batch ({a_type(batch)}) is the target of a metric is not known; {WRITE_A_FUNCTION}"
        )

    def _named_targets(self, batch: Mapping[Any, Any]) -> list[Any]:
        """The keys of what may be the target: those that are called so, or else those whose name speaks of it."""
        exact = [key for key in TARGETS if key in batch]
        if "labels" in exact and self.loss_fn is None and "labels" in arguments_of(self.model).named:
            return ["labels"]  # by which the model computes its loss
        if exact:
            return exact
        return [key for key in batch if isinstance(batch[key], Tensor) and is_named_label((key,))]
