"""Losses through ``torch.compile``: blocks compiled once; with ``"auto"`` proven, timed, and used where it is faster.

In goes the loss as the user's loop would compute it; out comes one that computes the same, or a report that says why
not.
"""

from brim.engine.compiled.compile_report import CompileReport
from brim.engine.compiled.compiled_loss import CompiledLoss
from brim.engine.compiled.compiled_step import CompiledStep

__all__ = ["CompileReport", "CompiledLoss", "CompiledStep"]
