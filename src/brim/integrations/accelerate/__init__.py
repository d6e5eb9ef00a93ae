"""Accelerate: batches on the GPU ahead of time, and a batch size that runs, with the same optimisation batch.

In come loaders that ``accelerator.prepare`` made and functions that train; out come the same batches and results.
docs/transformers.md shows both.
"""

from brim.integrations.accelerate.batch_size import find_executable_batch_size
from brim.integrations.accelerate.inner_loader import prefetch

__all__ = ["find_executable_batch_size", "prefetch"]
