"""What a metric sees of a batch: what the model returned in the pass that gave the loss, and the batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from brim.data import Batch
from brim.engine.components.loss_count import LABEL_WORDS
from brim.errors import ConfigError

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
        if isinstance(batch, Mapping):
            named = [batch[key] for key in ("labels", "label", "targets", "target", "y") if key in batch]
            named += [batch[key] for key in batch if any(word in str(key).lower() for word in LABEL_WORDS)]
            if named and isinstance(named[0], Tensor):
                return named[0]
        raise ConfigError(
            f"which part of a batch (a {type(batch).__name__}) is the target of a metric is not known; "
            f"{WRITE_A_FUNCTION}"
        )
