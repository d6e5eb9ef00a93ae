"""One GPU's share of a batch: what there is to compute in it, and whether it fits there."""

from dataclasses import dataclass, field, replace

from brim.memory.forecast import Setting, as_on_one_gpu
from brim.memory.planning.family import TraceFamily
from brim.memory.planning.plan import NothingFits, Planner
from brim.memory.planning.window import ONE_BATCH, StepBatches
from brim.memory.trace.steps import Job
from brim.memory.trace.trace import Trace
from brim.speed_up.work import Work, count_work


@dataclass(frozen=True)
class ShareFit:
    """Whether a share fits on a GPU, in how many slices of which size, and what torch would reserve for it."""

    fits: bool
    micro_batch: int
    slices: int
    reserved: int


@dataclass
class RankBatches:
    """Rank batches of one job by their size, each traced once for all strategies."""

    job: Job
    setting: Setting
    limit: int | None = None
    batches: StepBatches = ONE_BATCH
    _counted: dict[int, tuple[Trace, Work]] = field(default_factory=dict)

    def work(self, samples: int) -> Work:
        """What one pass over so many samples, and a step of the optimizer, have to do."""
        return self._count(samples)[1]

    def fit(self, samples: int, strategy: str, gpus: int) -> ShareFit:
        """How a share of so many samples fits on one of the GPUs."""
        setting = replace(self.setting, strategy=strategy, gpus=gpus)
        family = TraceFamily(lambda size: self._trace(size, setting))
        planner = Planner(self.job, setting, self.limit, self.batches, family, with_remedies=False)
        try:
            made = planner.plan(samples, look_further=False)
        except NothingFits as error:
            return ShareFit(False, samples, 1, error.forecast.reserved)
        return ShareFit(True, made.micro_batch, made.slices, made.forecast.reserved)

    def _trace(self, samples: int, setting: Setting) -> Trace:
        """As `family_of` makes it: with the batches of the step, and those that wait for theirs."""
        return self.batches.on_card(as_on_one_gpu(self._count(samples)[0], self.job, setting))

    def _count(self, samples: int) -> tuple[Trace, Work]:
        if samples not in self._counted:
            job = self.batches.passes_of(self.job)
            self._counted[samples] = count_work(job, samples, self.setting.card, self.setting.runtime)
        return self._counted[samples]
