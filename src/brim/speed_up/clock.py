"""How long one GPU takes for a share of a batch: measured here, or forecast, at the pace of a step that is known."""

import torch

from brim.hardware.peaks import USUAL, Peak
from brim.speed_up.measured_step import measure_step
from brim.speed_up.rank_batches import RankBatches, ShareFit
from brim.speed_up.scaled import FORECAST, GIVEN, MEASURED
from brim.speed_up.step_time import StepTime, paces, step_time


class StepClock:
    """The time of one pass over a number of samples, and of an optimizer step."""

    def __init__(self, rank_batches: RankBatches, peak: Peak | None, device: torch.device | None = None) -> None:
        self._rank_batches = rank_batches
        # Of a card nobody knows, the proportions between products, memory and launches are those of one we know.
        self._peak = peak or USUAL
        self._device = device
        self._paces = (1.0, 1.0)
        self._measured: dict[int, StepTime] = {}
        self.source = FORECAST if device is None else MEASURED

    def set_by(self, whole: ShareFit, seconds: float) -> None:
        """Go at the pace at which a step on one GPU takes so long."""
        self._paces = paces(self.time(whole), seconds)
        self.source = GIVEN

    def time(self, share: ShareFit) -> StepTime:
        """A whole step on a share, in the slices that it takes."""
        return self._one_pass(share.micro_batch).times(self._rank_batches.batches.accumulation * share.slices)

    def _one_pass(self, samples: int) -> StepTime:
        if self._device is None:
            return step_time(self._rank_batches.work(samples), self._peak).scaled(*self._paces)
        if samples not in self._measured:
            self._measured[samples] = measure_step(self._rank_batches.job, samples, self._device)
        return self._measured[samples]
