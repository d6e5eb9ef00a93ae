"""The step as a transaction: it happens whole, or the same batch is tried again in a way that takes less memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from brim.data import Batch, batch_length
from brim.engine.components.loss import CountedLoss, counted_in
from brim.engine.components.optimizer_state import allocate_state
from brim.engine.distributed.collective_recovery import CollectiveRecovery
from brim.engine.distributed.ranks import on_all_ranks
from brim.engine.oom.kept_window import KeptWindow
from brim.engine.oom.ladder import Ladder
from brim.engine.oom.memory_watch import MemoryWatch
from brim.engine.oom.micro_batch_search import MicroBatchSearch
from brim.engine.oom.out_of_memory import Shortage, is_out_of_memory, release_memory, shortage_of
from brim.engine.oom.snapshot import Snapshot
from brim.engine.splitting.loss_verdict import IN_PYTHON, LossVerdict
from brim.engine.splitting.splitting import Splitting, has_batch_norm
from brim.engine.step.eager_step import EagerStep
from brim.errors import CannotFit

STATE = "optimizer's state"
ASKED_AGAIN = frozenset(4**power for power in range(1, 12))  # steps after which later batches are asked as well
STATE_TRIES = 3  # what lies about in pieces may be in its way; the batch is not
Tell = Callable[..., None]
"""Says a sentence, with facts as keywords."""


class GuardedStep:
    """A step that does not end when memory runs out.

    The optimisation batch, the order of samples, the number of steps and the schedule stay as they are: the batch is
    computed in smaller slices, then with activation checkpointing, then without cached encodings. The optimizer's step
    is never tried again; its state is made beforehand.
    """

    def __init__(
        self,
        step: EagerStep,
        model: nn.Module | None,
        tell: Tell = lambda sentence, **facts: None,
        sliceable: bool | None = None,
        checkpointing: bool | str | None = None,
    ) -> None:
        self.step = step
        self.model = model
        self.tell = tell
        loss = counted_in(step.compute)
        if loss is None:
            step.compute = loss = CountedLoss(model, None, step.compute)
        self.splitting = Splitting(loss, model, step.precision, sliceable)
        self.failures = 0
        self.made = 0  # steps
        self.recovery: CollectiveRecovery | None = None  # of the ranks, when one runs out in their exchange
        self.snapshot = Snapshot(model, step.precision, self._loss_fn)
        self.kept = KeptWindow()
        self.watch = MemoryWatch(step.precision.device)
        self.ladder = Ladder(model, checkpointing)
        self.search: MicroBatchSearch | None = None
        self.estimate: Callable[[Batch], int | None] = lambda batch: None  # bytes of a slice
        self.memory_reclaimers: list[Callable[[], bool]] = [
            step.drop_overlap
        ]  # each gives back memory that only speed needs
        self._groups_with_state = 0
        self._state_failures = 0
        self._told_size: int | None = None
        self._failed_before = False  # in this step
        self._is_asked = False  # whether batches may be split
        self._told: set[str] = set()
        self._has_told_of_counters = False
        self._resorts = False  # to splitting what is another training in parts, for nothing else is left

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        self._failed_before = False
        self._take_snapshot()
        self.ask(window)
        self._keep(window)
        loss = self._apply(self._gradients(window))
        self.made += 1
        self.kept.forget()
        if self.step.skip_nonfinite:
            self.snapshot.put_buffers_back(loss.isnan())
        due = self.watch.is_due()
        if due or self.search is not None:
            self._look_around(window, due)
        return loss

    def _gradients(self, window: Sequence[Batch]) -> Tensor:
        """The mean loss and its gradients; those of all ranks where there are several."""
        if self.step.ranks is None:
            return self._found(window)
        if self.recovery is None:
            self.recovery = CollectiveRecovery(self.step.ranks)
            self.recovery.told, self.recovery.steps_made = self.tell, lambda: self.made
        # The next size is 0: smaller slices would not help, their memory is free again when ranks meet.
        return self.recovery.run(
            lambda: self._found(window), "exchange of gradients", lambda: 0, lambda size: None, self._undo
        )

    @property
    def sliceable(self) -> bool | None:
        return self.splitting.sliceable

    @property
    def _loss_fn(self) -> Any:
        loss = self.splitting.loss
        return None if loss is None else loss.loss_fn

    def _splits(self, window: Sequence[Batch]) -> bool:
        """Whether this step computes its batch in parts, as it was told to."""
        if len(window) > 1 or (self.step.ranks is not None and self.step.ranks.world > 1):
            return True
        return self.step.micro_batch is not None and batch_length(window[0]) > self.step.micro_batch

    def ask(self, window: Sequence[Batch]) -> None:
        """Before the first step in parts: what its loss counts, and a warning where parts do not add up.

        Ranks, which always have a part each, ask at the same step: their answers are compared.
        """
        if not self._splits(window):
            return
        batches = [batch for batch in window if batch_length(batch)]
        ranks, known = self.step.ranks, self.splitting.verdict
        is_due = self.made in ASKED_AGAIN and ranks is None  # ranks would have to exchange their answers anew
        is_new = not self._is_asked or not self.splitting.knows(batches)
        if not is_due and not is_new:
            return
        self._is_asked = True
        found = self.judge(batches, again=is_due)
        if not is_new and known is not None and (found.kind, found.moving) == (known.kind, known.moving):
            return  # nothing that was not said
        is_cut, world = self.step.micro_batch is not None, 1 if ranks is None else ranks.world
        parts = f"the parts of {world} ranks" if world > 1 else f"micro-batches of {self.step.micro_batch}"
        what = (
            f"{world} ranks each compute a part of the batch" if world > 1
            else f"micro_batch={self.step.micro_batch} splits the batch" if is_cut
            else f"gradients are accumulated over {len(window)} batches"
        )  # fmt: skip
        told = [self.splitting.warning(what), self.splitting.mixture(batches)]
        if is_cut or world > 1:
            told += self.splitting.differences(parts)
        elif self.splitting.hooked() and not self.sliceable:
            told += self.splitting.differences("each batch", only_hooks=True)
        if is_cut and world == 1 and self.splitting.has_batch_norm and not self.sliceable:
            told.append(
                f"micro_batch={self.step.micro_batch} slices the batch of a model with BatchNorm: its statistics are "
                "those of each slice, so this is another training"
            )
        for sentence in told if ranks is None or ranks.is_first else ():
            if sentence is not None and sentence not in self._told:
                self._told.add(sentence)
                self.tell(sentence)

    def judge(self, batches: Sequence[Batch], again: bool = False) -> LossVerdict:
        """What the loss is a mean over; everything that finding out has moved is put back."""
        ranks = self.step.ranks
        with_others = ranks if ranks is not None and ranks.world > 1 else None
        verdict = self.splitting.judge(batches, self.step.parameters, with_others, again)
        self.step.steady = self.splitting.steady_state()
        return verdict

    def _keep(self, window: Sequence[Batch]) -> None:
        try:
            self.kept.keep(window)
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release_memory(self.step.precision.device)
        self.kept.keep(window, copies=False)

    def _undo(self) -> None:
        """A rank ran out in the exchange itself, so gradients may have been added up in part."""
        self.step.clear_gradients()
        self.step.recompute_without_overlap()
        release_memory(self.step.precision.device)
        self._restore()

    def _restore(self) -> None:
        """Everything as it was before the failed try; or an error, where something cannot be put back."""
        lost = self.snapshot.beyond_repair()
        self.snapshot.restore()
        if not self.kept.restore():
            lost.append("the batch")
        if lost:
            raise CannotFit(
                f"memory ran out, and {', '.join(lost[:3])} had been changed in place by then, so the step cannot be "
                "made again; use a smaller batch_size, or change a copy (x = x - mean instead of x.sub_(mean))"
            )

    def _found(self, window: Sequence[Batch]) -> Tensor:
        """The mean loss and its gradients, in as many tries as it takes; then those of all ranks, who wait for it."""
        ranks = self.step.ranks
        overlapping = ranks is not None and self.step.begin_overlap()
        try:
            loss = self._attempt(window)
            if overlapping:
                found = self.step.finish_all_reduce(failed=not isinstance(loss, Tensor))
                if found is not None:
                    return found
                if isinstance(loss, Tensor):  # it was another rank: once more, and each alone
                    self.step.clear_gradients()
                    self._restore()
                    loss = self._attempt(window)
            while not isinstance(loss, Tensor):
                self._step_down(loss, window)
                loss = self._attempt(window)
        except CannotFit as error:
            if ranks is not None:
                ranks.report_failure(self.step.trained)
                raise on_all_ranks(error) from None
            raise
        return loss if ranks is None else self.step.all_reduce_gradients()

    def start_with(self, micro_batch: int, batch: int) -> None:
        """Slices of this size from the first step on, as a forecast or an earlier run says."""
        slices = -(-batch // micro_batch)
        self.search = MicroBatchSearch(batch, slices, bad=slices - 1)  # what says so says that fewer do not fit
        self._is_asked = True
        self._take_size()
        self._tell_differences()

    @property
    def is_settled(self) -> bool:
        """Whether the size of slices is not being searched for."""
        return self.search is None or self.search.is_settled

    @property
    def micro_batch(self) -> int | None:
        """Samples in a slice now; None where batches go through whole."""
        return self.step.micro_batch

    def _take_size(self) -> None:
        assert self.search is not None
        self.step.micro_batch = self.search.size if self.search.slices > 1 else None

    def _take_snapshot(self) -> None:
        try:
            self.snapshot.take()
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release_memory(self.step.precision.device)
        self.snapshot.forget_buffers()  # those of the next step are small: copies are made anew

    def _attempt(self, window: Sequence[Batch]) -> Tensor | Shortage:
        """The gradients of the window, and a place for the optimizer's state; or why there was no memory for them."""
        if self.search is not None and not self.search.is_settled:
            self.watch.begin()
        try:
            loss = self.step.gradients(self.kept.lend() or window)
            if len(self.step.optimizer.param_groups) != self._groups_with_state:
                allocate_state(self.step.optimizer)
                self._groups_with_state = len(self.step.optimizer.param_groups)
            if self.step.ranks is not None:
                self.step.ranks.reserve(self.step.trained)
                self.step.prepare_overlap()
            return loss
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            shortage = shortage_of(error, self._stage(error), self.model, self.step.optimizer)
        # Out here the exception is gone, and with it the frames that kept the failed computation alive.
        self.step.had_oom = True
        self.step.clear_gradients()
        release_memory(self.step.precision.device, thoroughly=self._failed_before)
        self._failed_before = True
        self._restore()
        return shortage

    def _stage(self, error: BaseException) -> str:
        """Where in the step it happened, by the names of the functions that were running."""
        names, trace = set(), error.__traceback__
        while trace is not None:
            names.add(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        if "allocate_state" in names:
            return STATE
        if "clip_grad_norm_" in names or "unscale" in names:
            return "clipping"
        return "backward pass" if "backward" in names else "forward pass"

    def _step_down(self, shortage: Shortage, window: Sequence[Batch]) -> None:
        """Choose something that takes less, or end with what is known."""
        self.failures += 1
        self.watch.ran_out()
        given = [give_back() for give_back in self.memory_reclaimers]
        if any(given):
            return
        self._tell_of_counters(window)
        self._state_failures = self._state_failures + 1 if shortage.stage == STATE else 0
        if self._state_failures > STATE_TRIES:
            raise CannotFit(
                f"{shortage.sentence()}; that stands whatever the batch is: use a leaner optimizer (SGD, Adafactor), "
                "freeze a part of the model, or shard it over several GPUs"
            )
        why_not = self._slice_smaller(window)
        if why_not is None:
            self._tell_smaller(shortage)
            return
        rung = self.ladder.next(lambda: self.estimate(window[0]))
        if rung is None and self._resort_to_slices(window):
            self._tell_smaller(shortage)
            return
        if rung is None:
            raise CannotFit(
                f"{shortage.sentence()}; {why_not}, and nothing else is left to try: use a smaller model or "
                "precision='bf16-mixed', shard it over several GPUs, or free memory on this one"
            )
        self.snapshot.forget_buffers()  # encodings that are no longer kept must not be kept by their copy
        self.snapshot.take()
        if self.search is not None:  # with less to keep, larger slices may run again
            self.search = replace(self.search, slices=max(1, self.search.slices // 8), good=None, bad=0)
            self._take_size()
        self.tell(f"{shortage.sentence()}; {why_not}: {rung}", stage=shortage.stage)

    def _tell_of_counters(self, window: Sequence[Batch]) -> None:
        """Once: what users' code counts in Python has counted the failed try, and nothing takes that back."""
        if self._has_told_of_counters or (self.step.ranks is not None and self.splitting.verdict is None):
            return
        self._has_told_of_counters = True
        verdict = self.judge([batch for batch in window if batch_length(batch)])
        if any(state.name == IN_PYTHON for state in verdict.moving) and not self.sliceable:
            self.tell(
                "the loss depends on how often it was called, which it counts in Python: a try that ran out of memory "
                "counts as well, so this is another training than without it; keep the count in a buffer"
            )

    def _tell_smaller(self, shortage: Shortage) -> None:
        assert self.search is not None
        self._told_size = self.search.size
        action = f"going on with slices of {self.search.size} (the batch stays {self.search.batch})"
        self.tell(f"{shortage.sentence()}; {action}", micro_batch=self.search.size, stage=shortage.stage)

    def _resort_to_slices(self, window: Sequence[Batch]) -> bool:
        """Nothing else is left, and what slices change is statistics within the model: better than no training."""
        if self._resorts or not self.splitting.is_last_resort:
            return False
        self._resorts = True
        return self._slice_smaller(window) is None

    def _slice_smaller(self, window: Sequence[Batch]) -> str | None:
        """Take smaller slices; or say why that is not possible."""
        if max(map(batch_length, window)) <= 1:
            return "a slice is one sample already"
        search = self._search_for(window)
        if search is None:
            return self.splitting.why_whole()
        if not search.failed():
            return "a slice is one sample already" if search.size == 1 else f"a slice is {search.size} samples already"
        self._take_size()
        return None

    def _search_for(self, window: Sequence[Batch]) -> MicroBatchSearch | None:
        """The search for the size of slices; None where this loss must not be sliced."""
        if self.sliceable is False or (self.search is None and not self._may_slice(window[0])):
            return None
        longest = max(batch_length(batch) for batch in window)
        if self.search is None or longest > self.search.batch:
            now = longest if self.step.micro_batch is None else min(longest, self.step.micro_batch)
            smallest = 2 if self.model is not None and has_batch_norm(self.model) else 1
            self.search = MicroBatchSearch(longest, -(-longest // now), smallest)
        return self.search

    def _may_slice(self, batch: Batch) -> bool:
        """Before the first slice: whether slices of this batch add up to it. What is sliced already may be."""
        if self._is_asked:
            return True
        verdict = self.judge([batch] if batch_length(batch) else [])
        is_free = verdict.gives_count and not self.splitting.has_batch_norm
        if not (is_free or self.sliceable or self._resorts):
            return False
        self._is_asked = True
        self._tell_differences()
        return True

    def _tell_differences(self) -> None:
        """What slices change although they were not asked for: each once."""
        told = self.splitting.differences("slices")
        if self.splitting.has_batch_norm:
            told.append("slices have their own BatchNorm statistics, so from here on this is another training")
        elif self._resorts:
            told.append(
                "whether the model mixes the samples of a batch could not be told, for lack of memory; if it does, "
                "this is another training in slices"
                if self.splitting.verdict is not None and self.splitting.verdict.lacks_memory
                else "the model mixes the samples of a batch, as a batch norm does, so in slices this is another "
                "training than with the whole batch"
            )
        for sentence in told:
            self.tell(sentence)

    def _apply(self, loss: Tensor) -> Tensor:
        try:
            return self.step.apply(loss)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            sentence = shortage_of(error, "optimizer's step", self.model, self.step.optimizer).sentence()
        raise OptimizerRanOut(
            f"{sentence}; its weights may be half stepped, so go on from the last checkpoint with a leaner optimizer "
            "(fused=True, or one by name)"
        )

    def _look_around(self, window: Sequence[Batch], due: bool) -> None:
        """After a good step: larger slices where they may run again, smaller ones where the allocator struggles."""
        search = self.search
        if search is not None and not search.is_settled:
            self._try_another_size(search)
        if not due:
            return
        if search is not None and search.slices > 1 and self.watch.has_more_room():
            search.there_is_room()
            self.tell("there is more room on the card again: larger slices are tried", micro_batch=search.size)
        elif self.watch.empty_cache_after_retries() and (search := self._search_for(window)) and search.struggled():
            self._take_size()
            self.tell(
                f"the allocator has to give memory back again and again: slices of {search.size} from here on",
                micro_batch=search.size,
            )

    def _try_another_size(self, search: MicroBatchSearch) -> None:
        """While the size is being found: larger slices after a good step, smaller ones after a laboured step."""
        if search.good is not None and self.watch.had_to_retry():
            search.struggled()
        else:
            fewer = search.ran(self.watch.largest_size(search.size))
            search.slices = fewer or search.slices
        self._take_size()
        if search.is_settled and search.size != self._told_size:
            self._told_size = search.size
            self.tell(f"slices of {search.size} from here on", micro_batch=self.micro_batch)


class OptimizerRanOut(CannotFit):
    """The optimizer's step ran out of memory: its weights cannot be trusted, and no checkpoint is made of them."""
