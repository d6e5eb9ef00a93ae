"""The step as a transaction: it happens whole, or the same batch is tried again in a way that takes less memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from torch import nn

from brim.data import Batch, batch_length
from brim.engine.distributed.collective_recovery import CollectiveRecovery
from brim.engine.distributed.gradient_exchange import Reduced
from brim.engine.distributed.ranks import on_all_ranks
from brim.engine.gathering.gather_session import ExchangeRanOut, GatherSession, PeerRanOut
from brim.engine.oom.ladder import Ladder
from brim.engine.oom.lockstep_search import LATER
from brim.engine.oom.memory_watch import MemoryWatch
from brim.engine.oom.micro_batch_search import MicroBatchSearch
from brim.engine.oom.out_of_memory import STATE, Shortage, is_out_of_memory, release_memory, shortage_of
from brim.engine.splitting.batch_norms import has_batch_norm
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.replicated_step import ReplicatedStep
from brim.engine.step.splitting_check import Tell
from brim.engine.step.step_result import StepResult
from brim.engine.step.transaction import Transaction
from brim.errors import CannotFit
from brim.model_blocks import BlockChoice

STATE_TRIES = 3  # what lies about in pieces may be in its way; the batch is not
Found = TypeVar("Found")


class GuardedStep:
    """A step that does not end when memory runs out.

    The optimisation batch, the order of samples, the number of steps and the schedule stay as they are: the batch is
    computed in smaller micro-batches, then with activation checkpointing, then without cached encodings. The
    optimizer's step is never tried again; its state is made beforehand.
    """

    def __init__(
        self,
        step: EagerStep,
        model: nn.Module | None,
        tell: Tell = lambda sentence, **facts: None,
        sliceable: bool | None = None,
        checkpointing: BlockChoice = None,
        replicated: ReplicatedStep | None = None,
    ) -> None:
        self.step = step
        self.replicated = replicated  # the same step, where other ranks have a part of the batch
        self.model = model
        self.tell = tell
        ranks = None if replicated is None else replicated.ranks
        self.transaction = Transaction(step, model, ranks, tell, sliceable)
        self.splitting, self.check = self.transaction.splitting, self.transaction.check
        self.failures = 0
        self.awaits_compiler = False  # it is not decided yet whether the loss is compiled
        self.watch = MemoryWatch(step.precision.device)
        self.ladder = Ladder(model, checkpointing)
        self.search: MicroBatchSearch | None = None
        self.estimate: Callable[[Batch], int | None] = lambda batch: None  # bytes of a micro-batch
        self.refit: Callable[[Sequence[Batch]], str | None] = lambda window: None  # what takes less, as a plan says
        self.memory_reclaimers: list[Callable[[], bool]] = []  # each gives back memory that only speed needs
        self.exchange = None if replicated is None else replicated.exchange
        self._recovery = None if replicated is None else CollectiveRecovery(replicated.ranks, tell)
        if replicated is not None:
            self.memory_reclaimers.append(replicated.drop_overlap)
        self._state_failures = 0
        self._reported_size: int | None = None
        self._had_oom = False  # in this step
        self._splits_anyway = False  # to splitting what is another training in parts, for nothing else is left

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        self._had_oom = False
        self.transaction.begin(window)
        if self.replicated is None:
            result = self.transaction.apply(self.step.apply, self._until_it_fits(self.step.gradients, window))
        else:
            result = self._replicated(self.replicated, window)
        if self.step.skip_nonfinite:
            self.transaction.snapshot.restore_buffers_if_nonfinite(result.loss)
        if (session := self.session) is not None:
            self._adjust_size_on_all_ranks(session)
            return result
        due = self.watch.is_due()
        if due or self.search is not None:
            self._adjust_size(window, due)
        return result

    @property
    def session(self) -> GatherSession | None:
        """Of this step, where its loss gathers from other ranks: then all of them decide, and decide the same."""
        return None if self.replicated is None else self.replicated.session

    def _replicated(self, replicated: ReplicatedStep, window: Sequence[Batch]) -> StepResult:
        reduced = self._all_reduced(replicated, window)
        loss, stepped, *_ = self.transaction.apply(self.step.apply, reduced.loss.mean)
        return StepResult(loss, stepped, reduced.signalled, reduced.stop_requested, reduced.uneven_gradients)

    def _all_reduced(self, replicated: ReplicatedStep, window: Sequence[Batch]) -> Reduced:
        """The loss and the gradients of all ranks, again where one ran out of memory in the exchange itself."""
        assert self._recovery is not None
        self._recovery.steps_made = self.transaction.made
        # The next size is 0: smaller micro-batches would not help, their memory is free again by then.
        return self._recovery.run(
            lambda: self._exchanged(replicated, window), "exchange of gradients", lambda: 0, lambda size: None,
            self._undo_exchange,
        )  # fmt: skip

    @property
    def sliceable(self) -> bool | None:
        return self.splitting.sliceable

    def _undo_exchange(self) -> None:
        """A rank ran out in the exchange itself, so gradients may have been added up in part."""
        assert self.replicated is not None
        self.step.clear_gradients()
        self.replicated.abandon_exchange()
        release_memory(self.step.precision.device)
        self.transaction.restore()

    def _exchanged(self, replicated: ReplicatedStep, window: Sequence[Batch]) -> Reduced:
        """This rank's gradients, in as many tries as it takes, then those of all ranks, who wait for it."""
        overlapping = replicated.begin(window, self.check.gathers)
        try:
            if overlapping:
                own = self._attempt(replicated.gradients, window)
                reduced = replicated.finish_overlapped(None if isinstance(own, Shortage) else own)
                if reduced is not None:
                    return reduced
                if isinstance(own, Shortage):
                    self._step_down(own, window)
                else:  # it was another rank: once more, and each alone
                    self.step.clear_gradients()
                    self.transaction.restore()
            found = self._until_it_fits(replicated.gradients, window)
        except CannotFit as error:
            if replicated.session is None:  # else all ranks end with it
                replicated.report_failure()
            raise on_all_ranks(error) from None
        return replicated.all_reduce_gradients(found)

    def _until_it_fits(self, compute: Callable[[Sequence[Batch]], Found], window: Sequence[Batch]) -> Found:
        """What ``compute`` finds, in as many tries as it takes."""
        while isinstance(found := self._attempt(compute, window), Shortage):
            self._step_down(found, window)
        return found

    def start_with(self, micro_batch: int, batch: int) -> None:
        """Micro-batches of this size from the first step on, as a forecast or an earlier run says."""
        number = -(-batch // micro_batch)
        self.search = MicroBatchSearch(batch, number, bad=number - 1)  # what says so says that fewer do not fit
        self._take_size()
        self.check.tell_differences()

    @property
    def is_settled(self) -> bool:
        """Whether steps are computed as they will be: neither the micro-batch size nor the compiler is open."""
        return not self.awaits_compiler and (self.search is None or self.search.is_settled)

    @property
    def micro_batch(self) -> int | None:
        """Samples in a micro-batch now; None where batches go through whole."""
        return self.step.micro_batch

    def _take_size(self) -> None:
        assert self.search is not None
        self.step.micro_batch = self.search.size if self.search.number > 1 else None

    def _attempt(self, compute: Callable[[Sequence[Batch]], Found], window: Sequence[Batch]) -> Found | Shortage:
        """The gradients of the window, and a place for the optimizer's state; or why there was no memory for them."""
        if self.search is not None and not self.search.is_settled:
            self.watch.begin()
        try:
            found = compute(self.transaction.kept.lend() or window)
            self.transaction.reserve_state()
            if self.session is not None:
                self.session.finish()
            return found
        except Exception as error:
            if not is_out_of_memory(error) or isinstance(error, ExchangeRanOut):
                raise
            shortage = shortage_of(error, self.step.phase, self.model, self.step.optimizer)
            is_own = not isinstance(error, PeerRanOut)
        # Out here the exception is gone, and with it the frames that kept the failed computation alive.
        if self.session is not None and is_own:
            self.session.report_oom()
        if self.replicated is not None:
            self.replicated.had_oom = True
        self.step.clear_gradients()
        release_memory(self.step.precision.device, thoroughly=self._had_oom)
        self._had_oom = True
        if self.session is not None:
            return self.session.all_gather_shortage(shortage if is_own else None, self._why_not_restored())
        self.transaction.restore()
        return shortage

    def _why_not_restored(self) -> str | None:
        """Everything as it was before the failed try; or why that cannot be."""
        try:
            self.transaction.restore()
        except CannotFit as error:
            return str(error)
        return None

    def _step_down(self, shortage: Shortage, window: Sequence[Batch]) -> None:
        """Choose something that takes less, or end with what is known."""
        self.failures += 1
        self.watch.note_oom()
        given = [give_back() for give_back in self.memory_reclaimers]
        if any(given) if self.session is None else self.session.any_rank(any(given)):
            return
        self.check.tell_of_counters(window)
        self._state_failures = self._state_failures + 1 if shortage.stage == STATE else 0
        if self._state_failures > STATE_TRIES:
            raise CannotFit(
                f"{shortage.sentence()}; that stands whatever the batch is: use a leaner optimizer (SGD, Adafactor), "
                "freeze a part of the model, or shard it over several GPUs"
            )
        refitted = self.refit(window) if self.session is None else None  # plans of ranks may differ
        if refitted is not None:
            self._reported_size = self.micro_batch
            self.tell(f"{shortage.sentence()}; {refitted}", micro_batch=self.micro_batch, stage=shortage.stage)
            return
        why_not = self._split_smaller(window)
        if why_not is None:
            self._tell_smaller(shortage)
            return
        # Forecasts of ranks may differ, and what they do must not.
        rung = self.ladder.next(lambda: self.estimate(window[0]) if self.session is None else None)
        if rung is None and self._split_as_last_resort(window):
            self._tell_smaller(shortage)
            return
        if rung is None:
            raise CannotFit(
                f"{shortage.sentence()}; {why_not}, and nothing else is left to try: use a smaller model or "
                "precision='bf16-mixed', shard it over several GPUs, or free memory on this one"
            )
        self.transaction.snapshot.forget_buffers()  # encodings that are no longer kept must not be kept by their copy
        self.transaction.snapshot.take()
        if self.search is not None:  # with less to keep, larger micro-batches may run again
            self.search = replace(self.search, number=max(1, self.search.number // 8), good=None, bad=0)
            self._take_size()
        self._tell_once(f"{shortage.sentence()}; {why_not}: {rung}", stage=shortage.stage)

    def _tell_once(self, sentence: str, **facts: Any) -> None:
        """Say it; of ranks that decide the same, the first one does."""
        if self.session is None or self.session.ranks.is_first:
            self.tell(sentence, **facts)

    def _tell_smaller(self, shortage: Shortage) -> None:
        assert self.search is not None
        self._reported_size = self.search.size
        whose = "the batch stays" if self.session is None else "all ranks; their parts of the batch stay"
        action = f"going on with micro-batches of {self.search.size} ({whose} {self.search.batch})"
        self._tell_once(f"{shortage.sentence()}; {action}", micro_batch=self.search.size, stage=shortage.stage)

    def _split_as_last_resort(self, window: Sequence[Batch]) -> bool:
        """Nothing else is left, and micro-batches only change statistics within the model: better than no training."""
        if self._splits_anyway or not self.splitting.is_last_resort:
            return False
        self._splits_anyway = True
        return self._split_smaller(window) is None

    def _split_smaller(self, window: Sequence[Batch]) -> str | None:
        """Take smaller micro-batches; or say why that is not possible."""
        if self._longest(window) <= 1:
            return "a micro-batch is one sample already"
        search = self._search_for(window)
        if search is None:
            return self.splitting.why_whole()
        if not search.shrink_after_oom():
            return (
                "a micro-batch is one sample already"
                if search.size == 1
                else f"a micro-batch is {search.size} samples already"
            )
        self._take_size()
        return None

    def _search_for(self, window: Sequence[Batch]) -> MicroBatchSearch | None:
        """The search for the micro-batch size; None where this loss must not be split."""
        if self.session is not None and self.step.two_passes is None:
            return None  # the micro-batches of ranks would be compared with each other alone
        if self.sliceable is False or (
            self.search is None and not self.check.permit_splitting(window[0], self._splits_anyway)
        ):
            return None
        longest = self._longest(window)
        if self.search is None or longest > self.search.batch:
            now = longest if self.step.micro_batch is None else min(longest, self.step.micro_batch)
            smallest = 2 if self.model is not None and has_batch_norm(self.model) else 1
            self.search = MicroBatchSearch(longest, -(-longest // now), smallest)
        return self.search

    def _longest(self, window: Sequence[Batch]) -> int:
        """The most samples of a batch in the step; of all ranks, where they decide together."""
        return max(map(batch_length, window)) if self.session is None else self.session.longest

    def _adjust_size_on_all_ranks(self, session: GatherSession) -> None:
        """The same where ranks decide together: the rank with the least memory decides for all."""
        search = self.search
        if search is None:
            return
        if not search.is_settled:
            had_retries = session.any_rank(self.watch.had_alloc_retries())
            self._try_another_size(search, had_retries, session.all_reduce_min(self.watch.largest_fitting(search.size)))
        elif search.number > 1 and not self.transaction.made % LATER and session.any_rank(self.watch.has_more_memory()):
            self.watch.note_usable_memory()
            search.forget_failures()
            self._tell_once("more memory is free on the GPUs again: trying larger micro-batches")

    def _adjust_size(self, window: Sequence[Batch], due: bool) -> None:
        """After a good step: larger micro-batches where they may fit, smaller ones after repeated retries."""
        search = self.search
        if search is not None and not search.is_settled:
            self._try_another_size(search, self.watch.had_alloc_retries(), self.watch.largest_fitting(search.size))
        if not due:
            return
        self.watch.note_check()
        if search is not None and search.number > 1 and self.watch.has_more_memory():
            self.watch.note_usable_memory()
            search.forget_failures()
            self.tell("more memory is free on the GPU again: trying larger micro-batches", micro_batch=search.size)
        elif self.watch.empty_cache_after_retries():
            search = self._search_for(window)
            if search is not None and search.shrink_after_retries():
                self._take_size()
                sentence = f"the CUDA allocator keeps retrying: micro-batches of {search.size} from here on"
                self.tell(sentence, micro_batch=search.size)

    def _try_another_size(self, search: MicroBatchSearch, had_retries: bool, largest: int | None) -> None:
        """While the size is searched: larger micro-batches after a good step, smaller ones after one with retries."""
        if search.good is not None and had_retries:
            search.shrink_after_retries()
        else:
            fewer = search.note_success(largest)
            search.number = fewer or search.number
        self._take_size()
        if search.is_settled and search.size != self._reported_size:
            self._reported_size = search.size
            self._tell_once(f"micro-batches of {search.size} from here on", micro_batch=self.micro_batch)
