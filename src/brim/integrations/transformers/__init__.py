"""transformers.Trainer: a callback that forecasts its memory, logs where its time goes, and copies batches ahead.

In comes somebody's Trainer; out come a forecast, numbers in its logs, and the same training to the bit.
docs/transformers.md says what can be done there, and what takes brim's own loop.
"""

from brim.integrations.transformers.callback import BrimCallback, attach

__all__ = ["BrimCallback", "attach"]
