"""Whether a batch may be computed in parts, asked before its first step in parts; and what the user is told of it."""

from collections.abc import Callable, Sequence

from brim.data import Batch, batch_length
from brim.engine.distributed.ranks import Ranks
from brim.engine.splitting.batch_norms import FrozenNorms
from brim.engine.splitting.loss_verdict import IN_PYTHON, LossVerdict
from brim.engine.splitting.splitting import Splitting
from brim.engine.step.eager_step import EagerStep

ASKED_AGAIN = frozenset(4**power for power in range(1, 12))  # steps after which later batches are asked as well
Tell = Callable[..., None]
"""Says a sentence, with facts as keywords."""
JudgeFirst = Callable[[Batch], LossVerdict]
"""What the loss is a mean over, by one batch."""


NORMS_OF_RANKS = (
    "each rank has its own BatchNorm statistics, so this is another training than on one; "
    "nn.SyncBatchNorm.convert_sync_batchnorm(model) makes them those of all (on GPUs)"
)


IN_TWO_PASSES = "brim.TwoPass(encode, loss) makes it exact"
REGISTERED = (
    "did not exist before a try that ran out of memory, and keeps what that try has put there: where forward passes "
    "move it, this is another training than without the shortage; register it in __init__"
)
OVER_RANKS = "brim.gather(tensor), called in the loss for what it compares, makes it exact over ranks"
WRONG_GATHER = (
    "it calls brim.gather, and still the losses of two parts, weighted by their samples, do not add up to that of "
    "both: gather all that it compares, and compute the loss of the whole batch on every rank"
)


class SplittingCheck:
    """Says, each once, what parts of a batch change. ``judge_first`` judges, once, in place of the splitting."""

    def __init__(
        self,
        splitting: Splitting,
        step: EagerStep,
        ranks: Ranks | None,
        tell: Tell,
        judge_first: JudgeFirst | None = None,
    ) -> None:
        self.splitting = splitting
        # Batches of a window, and ranks, each have a loss of their own, also where micro-batches are only encoded.
        self.between = splitting.of_whole_loss() if splitting.is_of_encode else splitting
        self.step = step
        self.ranks = ranks
        self.tell = tell
        self._judge_first = judge_first
        self.is_asked = False  # whether batches may be split
        self._told: set[str] = set()
        self._has_told_of_counters = False
        self._frozen_norms = FrozenNorms(None)

    def judge(self, batches: Sequence[Batch], again: bool = False) -> LossVerdict:
        """What the loss is a mean over; everything that finding out has moved is put back."""
        if self._judge_first is not None:
            self.splitting.settle(self._judge_first(next(iter(batches), None)))
            assert self.splitting.verdict is not None
            return self.splitting.verdict
        verdict = self.splitting.judge(batches, self.step.parameters, self._others, again)
        self.step.steady = self.splitting.steady_state()
        return verdict

    @property
    def _others(self) -> Ranks | None:
        return self.ranks if self.ranks is not None and self.ranks.world > 1 else None

    @property
    def gathers(self) -> bool:
        """Whether the loss was seen to call brim.gather."""
        return self.between.gathers

    def ask(self, window: Sequence[Batch], steps_made: int) -> None:
        """Before the first step in parts: what its loss counts, and a warning where parts do not add up.

        Ranks, which always have a part each, ask at the same steps, and their answers are compared. A kind of
        batches that comes later is judged, and told of, by the ranks that it comes to.
        """
        if not self._splits(window) or (self.is_asked and self._judge_first is not None):
            return
        batches = [batch for batch in window if batch_length(batch)]
        known = self.splitting.verdict
        is_due = steps_made in ASKED_AGAIN
        is_new = not self.is_asked or known is None or not self.splitting.knows(batches)
        if self.is_asked and self._frozen_norms.were_thawed():
            self._tell_of_thawed_norms()
        if not is_due and not is_new:
            return
        self._begin()
        found = self.judge(batches, again=is_due)
        if self.between is not self.splitting and (len(window) > 1 or self._others is not None):
            self.between.on_verdict = self.splitting.on_verdict
            self.between.judge(batches, self.step.parameters, self._others, is_due)
        if not is_new and known is not None and (found.kind, found.moving) == (known.kind, known.moving):
            return  # nothing that was not said
        told = self._warnings(batches, len(window))
        for sentence in told if self.ranks is None or self.ranks.is_first or (is_new and known is not None) else ():
            if sentence is not None and sentence not in self._told:
                self._told.add(sentence)
                self.tell(sentence)

    def _begin(self) -> None:
        """From here on batches may be computed in parts."""
        if not self.is_asked:
            self._frozen_norms = FrozenNorms(self.splitting.model)
        self.is_asked = True

    def _tell_of_thawed_norms(self) -> None:
        """A callback has put BatchNorms that were frozen into train mode: nothing was said of them at the beginning."""
        alone = self.ranks is None or self.ranks.world == 1
        if self.step.micro_batch is not None and not self.splitting.sliceable:
            self.tell(
                f"a BatchNorm was thawed, and its statistics are those of micro-batches of {self.step.micro_batch}, so "
                "from here on this is another training than with the whole batch"
            )
        elif not alone and self.ranks is not None and self.ranks.is_first:
            self.tell(f"a BatchNorm was thawed: {NORMS_OF_RANKS}")

    def _splits(self, window: Sequence[Batch]) -> bool:
        """Whether this step computes its batch in parts, as it was told to."""
        if len(window) > 1 or (self.ranks is not None and self.ranks.world > 1):
            return True
        return self.step.micro_batch is not None and batch_length(window[0]) > self.step.micro_batch

    def _warnings(self, batches: Sequence[Batch], accumulated: int) -> list[str | None]:
        splitting, size = self.splitting, self.step.micro_batch
        is_cut, world = size is not None, 1 if self.ranks is None else self.ranks.world
        parts = f"the parts of {world} ranks" if world > 1 else f"micro-batches of {size}"
        told = [*self._of_loss(accumulated), self.between.mixture(batches)]
        if is_cut or world > 1:
            told += (self.between if world > 1 else splitting).differences(parts, called_once=not is_cut)
            told.append(self.between.drift() if world > 1 else None)
        elif splitting.hooked() and not splitting.sliceable:
            told += splitting.differences("each batch", only_hooks=True)
        if is_cut and world == 1 and splitting.has_batch_norm and not splitting.sliceable:
            told.append(
                f"micro_batch={size} splits the batch of a model with BatchNorm: its statistics are "
                "those of each micro-batch, so this is another training"
            )
        return told

    def _of_loss(self, accumulated: int) -> list[str | None]:
        """A sentence about a loss whose parts are not added up to that of the batch, by what makes the parts."""
        size, is_two_pass = self.step.micro_batch, self.between is not self.splitting
        world = 1 if self.ranks is None else self.ranks.world
        cut = f"micro_batch={size} splits the batch"
        of_encode = self.splitting.warning(cut) if is_two_pass and size is not None else None
        between, joins = self.between, self.between.verdict is not None and self.between.verdict.joins_ranks
        if world > 1 and not joins:
            advice = OVER_RANKS if not self.gathers else WRONG_GATHER
            return [of_encode, between.warning(f"{world} ranks each compute a part of the batch", advice)]
        if size is not None and not is_two_pass:
            return [between.warning(cut, IN_TWO_PASSES)]
        if accumulated > 1:
            what = f"gradients are accumulated over {accumulated} batches"
            advice = f"one batch with a batch_size {accumulated} times as large is exact" if is_two_pass else ""
            return [of_encode, between.warning(what, advice)]
        return [of_encode]

    def permit_splitting(self, batch: Batch, as_last_resort: bool) -> bool:
        """Before the first micro-batch: True where those of this batch add up to it, and what they change is told.

        What is split already may be.
        """
        if self.is_asked and (self.between is self.splitting or self.step.micro_batch is not None):
            return True
        verdict = self.splitting.verdict if self._others is not None else None
        verdict = verdict or self.judge([batch] if batch_length(batch) else [])
        is_free = verdict.gives_count and not self.splitting.has_batch_norm
        if not (is_free or self.splitting.sliceable or as_last_resort):
            return False
        self.tell_differences(as_last_resort)
        return True

    def tell_differences(self, as_last_resort: bool = False) -> None:
        """What micro-batches change although they were not asked for: each once."""
        self._begin()
        told = self.splitting.differences("micro-batches")
        if self.splitting.has_batch_norm:
            told.append("micro-batches have their own BatchNorm statistics, so from here on this is another training")
        elif as_last_resort:
            told.append(
                "whether the model mixes the samples of a batch could not be told, for lack of memory; if it does, "
                "this is another training in micro-batches"
                if self.splitting.verdict is not None and self.splitting.verdict.lacks_memory
                else "the model mixes the samples of a batch, as a batch norm does, so in micro-batches this is "
                "another training than with the whole batch"
            )
        for sentence in told:
            self.tell(sentence)

    def tell_of_counters(self, window: Sequence[Batch]) -> None:
        """Once: what users' code counts in Python has counted the failed try, and nothing takes that back."""
        if self._has_told_of_counters or (self.ranks is not None and self.splitting.verdict is None):
            return
        self._has_told_of_counters = True
        batches = [batch for batch in window if batch_length(batch)]
        verdict = self.judge(batches) if batches or self.ranks is None else self.splitting.verdict
        assert verdict is not None
        if any(state.name == IN_PYTHON for state in verdict.moving) and not self.splitting.sliceable:
            self.tell(
                "the loss depends on how often it was called, which it counts in Python: a try that ran out of memory "
                "counts as well, so this is another training than without it; keep the count in a buffer"
            )

    def tell_of_registered(self, names: Sequence[str]) -> None:
        """Once: buffers that a failed try has registered, and perhaps moved; what they were before is not known."""
        if names and REGISTERED not in self._told and not self.splitting.sliceable:
            self._told.add(REGISTERED)
            self.tell(f"{', '.join(names[:3])} {REGISTERED}")
