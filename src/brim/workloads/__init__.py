"""Complete programs on top of brim's rooms."""

from brim.workloads.saved_model import load

__all__ = ["load"]
