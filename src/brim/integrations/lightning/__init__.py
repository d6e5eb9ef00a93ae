"""Lightning: its modules in brim's loop, and brim's parts in its own.

In come LightningModules, data modules and loaders, of ``lightning`` or of ``pytorch_lightning``; out come runs of
brim's (:func:`train`), or a callback and a mixin for Lightning's trainer. docs/lightning.md says what is translated.
"""

from brim.integrations.lightning.training import train

__all__ = ["train"]
