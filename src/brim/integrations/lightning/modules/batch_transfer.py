"""What Lightning's hooks do to a batch on its way to the device."""

from typing import Any

from brim.integrations.lightning.module_kind import is_overridden

HOOK = "on_after_batch_transfer"


class BatchTransfer:
    """``on_after_batch_transfer`` of the data module or of the module, whichever has one; brim makes the copies."""

    def __init__(self, module: Any, datamodule: Any) -> None:
        self._datamodule = datamodule if is_overridden(datamodule, HOOK) else None
        self.changes_batches = self._datamodule is not None or is_overridden(module, HOOK)

    def after(self, model: Any, batch: Any, dataloader_idx: int) -> Any:
        """The batch on the device, as the user's hook makes it; ``model`` is the module, or a copy of it on trial."""
        if not self.changes_batches:
            return batch
        owner = model if self._datamodule is None else self._datamodule
        return owner.on_after_batch_transfer(batch, dataloader_idx)
