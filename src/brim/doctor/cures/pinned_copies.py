"""Copies from page-locked batches for which the host does not wait: what ``non_blocking=True`` in the script does.

The device computes with a copy only after it is complete, so what is trained is the same. One thing would not be: a
script that writes into a batch after it has copied it, while the copy may still be under way. It is found out, and
ends the script.
"""

from collections.abc import Callable

from torch import Tensor

from brim.doctor.cures.batch_moves import Asked, BatchMoves, ColumnPlace


class CopiesWithoutWaiting:
    """Answers copies of page-locked tensors by ones that only begin.

    Args:
        is_pinned: Whether a tensor is page-locked; for tests.
    """

    def __init__(self, is_pinned: Callable[[Tensor], bool] = Tensor.is_pinned) -> None:
        self._is_pinned = is_pinned
        self._begun: list[tuple[Tensor, int]] = []  # with the version of their contents

    def install(self, moves: BatchMoves) -> None:
        moves.answers.append(self.answer)
        moves.listeners.append(self.check)

    def answer(self, asked: Asked) -> Tensor | None:
        if not asked.waits or not self._is_pinned(asked.tensor):
            return None
        self._begun.append((asked.tensor, asked.tensor._version))
        return asked.call(asked.tensor, non_blocking=True)

    def check(self, tensor: Tensor, place: ColumnPlace) -> None:
        """The next batch is there: those before must still be what they were when they were copied."""
        begun, self._begun = self._begun, []
        if any(copied._version != version for copied, version in begun):
            raise RuntimeError("the script writes into batches after it has copied them: it has to wait for the copies")
