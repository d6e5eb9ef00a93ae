"""Where a run stands, in Lightning's counts, and which of the module's methods is being called."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from brim.integrations.lightning.module_kind import is_overridden

TRAIN, VALIDATE, SANITY = "train", "validate", "sanity_check"


@dataclass
class LoopState:
    """Epochs and batches from 0, as ``current_epoch`` and ``batch_idx`` of the module; optimizer steps made."""

    module: nn.Module
    epoch: int = 0
    step: int = 0
    batch_idx: int = 0
    stage: str = TRAIN
    hook: str = ""  # the method of the module that runs now; "" between them
    batch: Any = None  # the one that a hook is about
    dataloader_idx: int | None = None  # where validation has several loaders
    returned: Any = None  # by the last training_step
    metrics: dict[str, Any] = field(default_factory=dict)  # the newest number of every name, as callback_metrics

    @contextmanager
    def within(self, hook: str) -> Iterator[None]:
        """While the code of this method runs: it decides what a number that is logged meanwhile is of."""
        before, self.hook = self.hook, hook
        try:
            yield
        finally:
            self.hook = before

    def call(self, hook: str, *arguments: Any) -> Any:
        """The module's own hook, where its user wrote one."""
        if not is_overridden(self.module, hook):
            return None
        with self.within(hook):
            return getattr(self.module, hook)(*arguments)
