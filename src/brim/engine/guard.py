"""The step as a transaction: it happens whole, or the same batch is tried again in a way that takes less memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor, nn

from brim.data import Batch, batch_length
from brim.engine.ladder import Ladder
from brim.engine.memory_watch import MemoryWatch
from brim.engine.optimizer_state import allocate_state
from brim.engine.out_of_memory import Shortage, is_out_of_memory, shortage_of
from brim.engine.ranks import known_to_all
from brim.engine.release import release_memory
from brim.engine.reunion import Reunion
from brim.engine.slice_search import SliceSearch
from brim.engine.sliceable import why_not_sliceable
from brim.engine.snapshot import Snapshot
from brim.engine.step import EagerStep
from brim.errors import CannotFit, DataError

STATE = "optimizer's state"
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
        self.sliceable = sliceable
        self.failures = 0
        self.made = 0  # steps
        self.reunion: Reunion | None = None  # of the ranks, when one runs out in their exchange
        self.snapshot = Snapshot(model, step.precision)
        self.watch = MemoryWatch(step.precision.device)
        self.ladder = Ladder(model, checkpointing)
        self.search: SliceSearch | None = None
        self.estimate: Callable[[Batch], int | None] = lambda batch: None  # bytes of a slice
        self.luxuries: list[Callable[[], bool]] = [step.drop_overlap]  # each gives back memory that only speed needs
        self._groups_with_state = 0
        self._state_failures = 0
        self._told_size: int | None = None
        self._why_whole = "its loss must not be sliced"
        self._failed_before = False  # in this step

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        self._failed_before = False
        self._take_snapshot()
        loss = self._apply(self._gradients(window))
        self.made += 1
        if self.step.leaves_bad_out:
            self.snapshot.put_buffers_back(loss.isnan())
        due = self.watch.is_due()
        if due or self.search is not None:
            self._look_around(window, due)
        return loss

    def _gradients(self, window: Sequence[Batch]) -> Tensor:
        """The mean loss and its gradients; those of all ranks where there are several."""
        if self.step.ranks is None:
            return self._found(window)
        if self.reunion is None:
            self.reunion = Reunion(self.step.ranks)
            self.reunion.told, self.reunion.steps_made = self.tell, lambda: self.made
        # The next size is 0: smaller slices would not help, their memory is free again when ranks meet.
        return self.reunion.together(
            lambda: self._found(window), "exchange of gradients", lambda: 0, lambda size: None, self._undo
        )

    def _undo(self) -> None:
        """A rank ran out in the exchange itself, so gradients may have been added up in part."""
        self.step.clear_gradients()
        self.step.be_careful()
        release_memory(self.step.precision.device)
        self.snapshot.restore()

    def _found(self, window: Sequence[Batch]) -> Tensor:
        """The mean loss and its gradients, in as many tries as it takes; then those of all ranks, who wait for it."""
        ranks = self.step.ranks
        overlapping = ranks is not None and self.step.choose_lane()
        try:
            loss = self._attempt(window)
            if overlapping:
                found = self.step.meet_overlapping(failed=not isinstance(loss, Tensor))
                if found is not None:
                    return found
                if isinstance(loss, Tensor):  # it was another rank: once more, and each alone
                    self.step.clear_gradients()
                    self.snapshot.restore()
                    loss = self._attempt(window)
            while not isinstance(loss, Tensor):
                self._step_down(loss, window)
                loss = self._attempt(window)
        except CannotFit as error:
            if ranks is not None:
                ranks.give_up(self.step.trained)
                raise known_to_all(error) from None
            raise
        return loss if ranks is None else self.step.meet()

    def start_with(self, micro_batch: int, batch: int) -> None:
        """Slices of this size from the first step on, as a forecast or an earlier run says."""
        slices = -(-batch // micro_batch)
        self.search = SliceSearch(batch, slices, bad=slices - 1)  # what says so says that fewer do not fit
        self.sliceable = True if self.sliceable is None else self.sliceable
        self._take_size()

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
            loss = self.step.gradients(window)
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
        self.step.was_troubled = True
        self.step.clear_gradients()
        release_memory(self.step.precision.device, thoroughly=self._failed_before)
        self._failed_before = True
        self.snapshot.restore()
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
        given = [give_back() for give_back in self.luxuries]
        if any(given):
            return
        self._state_failures = self._state_failures + 1 if shortage.stage == STATE else 0
        if self._state_failures > STATE_TRIES:
            raise CannotFit(
                f"{shortage.sentence()}; that stands whatever the batch is: use a leaner optimizer (SGD, Adafactor), "
                "freeze a part of the model, or shard it over several GPUs"
            )
        why_not = self._slice_smaller(window)
        if why_not is None:
            assert self.search is not None
            self._told_size = self.search.size
            action = f"going on with slices of {self.search.size} (the batch stays {self.search.batch})"
            self.tell(f"{shortage.sentence()}; {action}", micro_batch=self.search.size, stage=shortage.stage)
            return
        rung = self.ladder.next(lambda: self.estimate(window[0]))
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

    def _slice_smaller(self, window: Sequence[Batch]) -> str | None:
        """Take smaller slices; or say why that is not possible."""
        search = self._search_for(window)
        if search is None:
            return self._why_whole
        if not search.failed():
            return "a slice is one sample already" if search.size == 1 else f"a slice is {search.size} samples already"
        self._take_size()
        return None

    def _search_for(self, window: Sequence[Batch]) -> SliceSearch | None:
        """The search for the size of slices; None where this loss must not be sliced."""
        if self.sliceable is False:
            return None
        if self.search is None and not self._may_slice(window[0]):
            self.sliceable = False
            return None
        longest = max(batch_length(batch) for batch in window)
        if self.search is None or longest > self.search.batch:
            now = longest if self.step.micro_batch is None else min(longest, self.step.micro_batch)
            smallest = 2 if self.model is not None and has_batch_norm(self.model) else 1
            self.search = SliceSearch(longest, -(-longest // now), smallest)
        return self.search

    def _may_slice(self, batch: Batch) -> bool:
        """Before the first slice: whether this loss can be sliced at all. What is sliced already can."""
        if self.sliceable is None and self.step.micro_batch is None:
            why_not = self._compare_halves(batch)
            if why_not is not None:
                self._why_whole = why_not
                return False
        if self.model is not None and has_batch_norm(self.model):
            self.tell("slices have their own BatchNorm statistics, so from here on this is another training")
        return True

    def _compare_halves(self, batch: Batch) -> str | None:
        """Why the batch cannot be sliced; None where it can, or where that cannot be told from a few samples."""
        try:
            with self.step.precision.autocast():
                return why_not_sliceable(self.step.compute, self.model, batch)
        except DataError as error:  # a packed sequence
            return str(error)
        except Exception:  # too large even so, or a loss that exists in training only
            return None
        finally:
            self.snapshot.restore()

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
        elif self.watch.is_short_of_breath() and (search := self._search_for(window)) and search.struggled():
            self._take_size()
            self.tell(
                f"the allocator has to give memory back again and again: slices of {search.size} from here on",
                micro_batch=search.size,
            )

    def _try_another_size(self, search: SliceSearch) -> None:
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


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
