"""Who watches while code runs as on the card: the recorder of the trace."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from brim.memory.kernels.scope import Scope


class CallRecorder(Protocol):
    """Writes down what happens inside a call, and knows what some fake tensors hold."""

    def record_call(self, scope: Scope, name: str, made: Sequence[Tensor | None]) -> None: ...

    def allocate_once(self, name: str, size: int) -> None: ...

    def paused(self) -> Any: ...

    def numbers(self, tensor: Tensor) -> list[int] | None: ...

    def note(self, sentence: str) -> None: ...
