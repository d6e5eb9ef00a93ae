"""What the operators of a fake card report to: the recorder of the trace, as far as they know it."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from brim.memory.kernels.scope import Scope


class CallRecorder(Protocol):
    """Records what happens inside a call, and knows what some fake tensors hold."""

    def record_call(self, scope: Scope, name: str, made: Sequence[Tensor | None]) -> None: ...

    def allocate_once(self, name: str, size: int) -> None: ...

    def paused(self) -> Any: ...

    def numbers(self, tensor: Tensor) -> list[int] | None: ...

    def note(self, sentence: str) -> None: ...
