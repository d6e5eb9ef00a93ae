"""A stand-in for a captured step: it computes anew at each replay, in the memory of the first time."""

from typing import Any

from brim.engine.captured.graph import StepGraph
from brim.engine.captured.inputs import LossRing


class OnCpu(StepGraph):
    def capture(self, pool: Any = None, stream: Any = None) -> None:
        self.eager.clear_gradients()
        self.make_step()
        assert self._loss is not None
        self._ring = None if self._ring_size is None else LossRing(self._ring_size, self._loss, self.inputs.cursor)
        self.gradients = [(p, p.grad) for p in self.eager.parameters if p.grad is not None]

    def _run(self) -> None:
        self.make_step()
        for parameter, memory in self.gradients:
            assert parameter.grad is not None
            memory.copy_(parameter.grad)
            parameter.grad = memory


def on_cpu(kind: type[StepGraph]) -> type[StepGraph]:
    """The same kind of graph without a card."""
    return OnCpu if kind is StepGraph else type(f"{kind.__name__}OnCpu", (kind, OnCpu), {})
