"""Complete programs on top of brim's rooms.

In: a configuration. Out: a trained model with its metrics beside baselines, and what uses it.
"""

from brim.workloads.saved_model import load

__all__ = ["load"]
