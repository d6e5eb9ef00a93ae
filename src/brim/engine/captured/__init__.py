"""The captured step: forward, backward and optimizer recorded once as a CUDA graph, proven, and replayed.

In: the eager step, and windows of batches on a GPU. Out: the same steps, by a graph where it pays; a reason where
there is none.
"""

from brim.engine.captured.captured_evaluation import ATTEMPT_SECONDS, CapturedLoss
from brim.engine.captured.captured_step import CapturedStep
from brim.engine.captured.graph_cache import release_graphs
from brim.engine.captured.over_ranks import CapturedOverRanks
from brim.engine.captured.padded.padding import Padding
from brim.engine.captured.payoff.eager_pace import EagerPace
from brim.engine.captured.payoff.prospects import Prospects
from brim.engine.captured.report import CaptureReport, Refusal

__all__ = [
    "ATTEMPT_SECONDS",
    "CaptureReport",
    "CapturedLoss",
    "CapturedOverRanks",
    "CapturedStep",
    "EagerPace",
    "Padding",
    "Prospects",
    "Refusal",
    "release_graphs",
]
