"""Looking at the card between steps: is there more room, how much does a sample take, is the allocator at its limit?"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from brim.engine.oom.memory_parts import CAPTURED, MemoryParts

EVERY_SECONDS = 1.0
MORE_MEMORY = 1.05  # times what could be used when memory ran out
FILLED = 0.94  # of what can be used: the rest goes to the pieces between blocks


class MemoryWatch:
    """What the card says. On anything but a GPU it has nothing to say."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_gpu = device.type == "cuda"
        self.most_allocated = self.most_reserved = 0  # over all steps: measuring one of them starts the count anew
        self.parts = MemoryParts()  # of the peak that was reserved
        self._part_before_attempt: str | None = None
        self._looked = 0.0
        self._usable_at_oom: int | None = None
        self._retries = 0
        self._in_a_row = 0

    def begin(self) -> None:
        """A step begins whose peak is to be known."""
        if self.is_gpu:
            self.note_peak()
            torch.cuda.reset_peak_memory_stats(self.device)
            self._retries = self._count_retries()

    def note_peak(self) -> None:
        """Keep the highest peaks."""
        self.most_allocated = max(self.most_allocated, torch.cuda.max_memory_allocated(self.device))
        self.most_reserved = max(self.most_reserved, torch.cuda.max_memory_reserved(self.device))
        self.parts.raise_to(self.most_reserved)

    @contextmanager
    def of_part(self, part: str) -> Iterator[None]:
        """What is reserved meanwhile beyond what was before is this part's."""
        if not self.is_gpu:
            yield
            return
        self.note_peak()
        before = self.parts.enter(part)
        try:
            yield
        finally:
            self.note_peak()
            self.parts.leave(before)

    def before_attempt(self) -> None:
        """A step is to be captured, which may be given up again."""
        if self.is_gpu:
            self.note_peak()
            self._part_before_attempt = self.parts.enter(CAPTURED)

    def attempt_kept(self) -> None:
        """It was captured: what its graph keeps is there to stay."""
        if self.is_gpu:
            self.note_peak()
            self._leave_attempt()

    def attempt_failed(self) -> None:
        """It was given up, and its memory is given back: its peak is none of the run's."""
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
            self._leave_attempt()

    def _leave_attempt(self) -> None:
        if self._part_before_attempt is not None:
            self.parts.leave(self._part_before_attempt)
            self._part_before_attempt = None

    def largest_fitting(self, size: int) -> int | None:
        """An estimate of the most samples that fit at once, by the peak of a step that has just run with ``size``."""
        if not self.is_gpu:
            return None
        standing = torch.cuda.memory_allocated(self.device)
        per_sample = max(1, torch.cuda.max_memory_allocated(self.device) - standing) / size
        return max(1, int((FILLED * usable_memory(self.device) - standing) / per_sample))

    def had_alloc_retries(self) -> bool:
        """Whether the allocator freed its cache and retried since the step began: slow, and close to failing."""
        return self.is_gpu and self._count_retries() > self._retries

    def note_oom(self) -> None:
        """Memory ran out now: remember how much could be used."""
        self.note_usable_memory()
        self._in_a_row = 0

    def is_due(self) -> bool:
        """Whether enough time has passed since the last check."""
        return self.is_gpu and time.perf_counter() - self._looked >= EVERY_SECONDS

    def note_check(self) -> None:
        """The card is checked now."""
        self._looked = time.perf_counter()

    def has_more_memory(self) -> bool:
        """Whether clearly more can be used than when memory ran out, or was last noted: another process ended, say."""
        before = self._usable_at_oom
        return before is not None and usable_memory(self.device) >= MORE_MEMORY * before

    def note_usable_memory(self) -> None:
        """Remember what can be used now: only clearly more than that is more memory."""
        if self.is_gpu:
            self._usable_at_oom = usable_memory(self.device)

    def empty_cache_after_retries(self) -> bool:
        """Whether the allocator had to retry at two checks in a row; after the first one its cache is emptied."""
        retries = self._count_retries()
        grew, self._retries = retries > self._retries, retries
        self._in_a_row = self._in_a_row + 1 if grew else 0
        if self._in_a_row == 1:
            torch.cuda.empty_cache()  # often they are all there is
        return self._in_a_row >= 2

    def _count_retries(self) -> int:
        return int(torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0))


def usable_memory(device: torch.device) -> int:
    """What torch may reserve now: what is free or its own already, within the share of the process if it has one."""
    free, total = torch.cuda.mem_get_info(device)
    share = torch.cuda.get_per_process_memory_fraction(device)
    return min(free + torch.cuda.memory_reserved(device), int(share * total))
