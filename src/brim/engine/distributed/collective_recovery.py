"""What ranks do when one of them cannot go on in the middle of a collective.

A rank that runs out of memory leaves the others waiting in a collective that it will never enter. So it posts a notice
in the store and shuts its connections down, which ends the waiting at once; all ranks form the group again, and go on
as the notice says.
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from brim.engine.distributed.notice import Notice
from brim.engine.distributed.process_group import ProcessGroup
from brim.engine.distributed.ranks import Ranks, on_all_ranks
from brim.engine.oom.out_of_memory import is_out_of_memory, shortage_of
from brim.engine.sandbox.error_origin import is_of_exchange, is_raised_in_python
from brim.errors import CannotFit, RanksLost

Result = TypeVar("Result")
GRACE_S = 0.2  # for others to end the exchange before, which this rank has ended
NOTICE_S = 3.0  # for the notice of a rank whose connections are cut
LOOKS_S = 0.5
TRIES = 3  # where nothing smaller is left: what was given back meanwhile may be enough


class CollectiveRecovery:
    """Runs what all ranks do at once, and again with smaller micro-batches where one of them has no memory.

    ``tell`` says what became of it; ``rebuild`` is handed the forming of the group, and builds what depends on it.
    """

    def __init__(self, ranks: Ranks, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self.ranks = ranks
        self.tell = tell
        self.rebuild: Callable[[Callable[[], None]], None] = lambda form_group: form_group()
        self.steps_made = 0  # on this rank: the same on all, or they were cut off at different steps
        self._tries = 0
        self._watch = _Watch(ranks.group)

    def run(
        self,
        attempt: Callable[[], Result],
        what: str,
        next_size: Callable[[], int],
        smaller: Callable[[int], None],
        undo: Callable[[], None] = lambda: None,
    ) -> Result:
        """The result of ``attempt``, which all ranks make at once.

        ``next_size`` says how large micro-batches may be after this rank ran out (0 where that does not help),
        ``smaller`` takes what the rank that did has said, ``undo`` takes back what an attempt may have changed.
        """
        while True:
            began = time.monotonic()
            try:
                with self._watch:
                    result = attempt()
                self._tries = 0
                return result
            except Exception as error:
                notice = self._own_notice(error, what, next_size)
                if notice is None and not self._is_notified(error):
                    if not isinstance(error, RanksLost) and is_of_exchange(error):
                        raise self.ranks.lost(error, f"the {what}", time.monotonic() - began) from error
                    raise
            undo()
            self._form_again(notice, smaller)

    def _own_notice(self, error: BaseException, what: str, next_size: Callable[[], int]) -> Notice | None:
        if not is_out_of_memory(error):
            return None
        sentence = shortage_of(error, what, None, None).sentence()
        return Notice(self.ranks.rank, sentence, next_size())

    def _is_notified(self, error: BaseException) -> bool:
        """Whether another rank has said that it cannot go on: then this error is only how that is felt here."""
        if not isinstance(error, RuntimeError | ValueError | RanksLost) or is_raised_in_python(error):
            return False
        if self.ranks.group is None:
            return False
        until = time.monotonic() + (NOTICE_S if is_of_exchange(error) else 0.0)
        while not self.ranks.group.has_notice():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _form_again(self, notice: Notice | None, smaller: Callable[[int], None]) -> None:
        if notice is not None:
            if self.ranks.group is None:
                raise CannotFit(
                    f"{notice.sentence}; the process group is not brim's, so the ranks cannot form it again: start "
                    "them with torchrun and leave init_process_group to brim"
                )
            self.ranks.group.post_notice(notice)
            time.sleep(GRACE_S)
        group = self.ranks.group
        assert group is not None
        group.shut_down()
        if (failure := group.posted_failure()) is not None:
            group.is_broken = True
            raise failure.error(self.ranks.rank, self.ranks.world)
        read = group.read_notice()
        self.rebuild(group.form)
        if len(set(self.ranks.all_gather_object(self.steps_made))) > 1:
            raise RanksLost("the ranks were cut off from each other at different steps; start again with resume")
        where = "" if read.rank == self.ranks.rank else f"rank {read.rank}: "
        action = f"go on in micro-batches of {read.micro_batch}" if read.micro_batch else "try again"
        if read.micro_batch:
            smaller(read.micro_batch)
        else:
            self._tries += 1  # on all ranks alike: they have read the same notice
            if self._tries > TRIES:
                raise on_all_ranks(
                    CannotFit(f"{where}{read.sentence}; micro-batches of one sample are too much already")
                )
        if self.ranks.is_first:
            self.tell(f"{where}{read.sentence}; all ranks formed the group again and {action}")


class _Watch:
    """Aborts this rank's NCCL collective, whose peers do not notice a closed connection, from a thread of its own."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self.group = group
        self.is_inside = False
        self._has_begun = False

    def __enter__(self) -> None:
        self.is_inside = True
        if self._has_begun:
            return
        self._has_begun = True
        if self.group is not None and self.group.world > 1 and dist.get_backend() == "nccl":
            threading.Thread(target=_abort_at_notice, args=(weakref.ref(self),), daemon=True, name="brim-watch").start()

    def __exit__(self, *_: object) -> None:
        self.is_inside = False


def _abort_at_notice(of: "weakref.ref[_Watch]") -> None:
    """Until nobody holds the watch any more: the run is over."""
    has_aborted = False
    while (watch := of()) is not None:
        if watch.is_inside and not has_aborted and watch.group is not None and watch.group.has_notice():
            dist.distributed_c10d._abort_process_group()
            has_aborted = True
        has_aborted = has_aborted and watch.is_inside  # until the one who waited has noticed
        del watch
        time.sleep(LOOKS_S)
