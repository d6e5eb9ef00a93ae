"""The captured step: forward, backward and optimizer recorded once as a CUDA graph, proven, and replayed."""

from brim.engine.captured.evaluation import CapturedLoss
from brim.engine.captured.over_ranks import CapturedOverRanks
from brim.engine.captured.report import CaptureReport, Refusal
from brim.engine.captured.step import CapturedStep

__all__ = ["CaptureReport", "CapturedLoss", "CapturedOverRanks", "CapturedStep", "Refusal"]
