"""Sums of gradients: in place where a card makes them in place."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brim.hardware.cards import H200
from brim.memory.kernels.elementwise import HINT, SUM
from brim.memory.trace.accumulation import sums_in_place
from brim.memory.trace.steps import Job, trace_steps
from brim.memory.trace.trace import DEATH, Storage, Trace

SIZE = 4096


def storages(*operators: str) -> list[Storage]:
    return [Storage(SIZE if name != "hint" else HINT, SUM if name == "hint" else name, "backward",
                    kind="workspace" if name == "hint" else "") for name in operators]  # fmt: skip


def trace_of(*events: tuple[int, int]) -> Trace:
    """Storages 0 and 1 are terms, 2 is their sum and 3 the hint."""
    return Trace(storages("aten.mm.default", "aten.mm.default", SUM, "hint"), list(events), [(0, "backward")])


BORN = [(0, SIZE), (1, SIZE), (2, SIZE), (3, HINT), (3, DEATH)]


def test_a_sum_takes_over_the_storage_of_its_first_term() -> None:
    made = sums_in_place(trace_of(*BORN, (0, DEATH), (1, DEATH), (2, DEATH)))
    assert made.events == [(0, SIZE), (1, SIZE), (1, DEATH), (0, DEATH)]


def test_a_first_term_that_lives_on_is_left_alone() -> None:
    made = sums_in_place(trace_of(*BORN, (1, DEATH), (2, DEATH)))
    assert made.events == [(0, SIZE), (1, SIZE), (2, SIZE), (1, DEATH), (2, DEATH)]


def test_a_second_term_may_live_on() -> None:
    made = sums_in_place(trace_of(*BORN, (0, DEATH), (2, DEATH)))
    assert made.events == [(0, SIZE), (1, SIZE), (0, DEATH)]


def test_without_a_hint_a_sum_has_its_own_storage() -> None:
    made = sums_in_place(trace_of((0, SIZE), (1, SIZE), (2, SIZE), (0, DEATH), (1, DEATH)))
    assert len(made.events) == 5


def test_a_sum_may_take_over_what_a_sum_took_over() -> None:
    trace = Trace(storages("a", "b", SUM, "hint", "c", SUM, "hint"), [], [(0, "backward")])
    trace.events += [*BORN, (0, DEATH), (1, DEATH)]
    trace.events += [(4, SIZE), (5, SIZE), (6, HINT), (6, DEATH), (2, DEATH), (4, DEATH), (5, DEATH)]
    made = sums_in_place(trace)
    assert made.events == [(0, SIZE), (1, SIZE), (1, DEATH), (4, SIZE), (4, DEATH), (0, DEATH)]


def test_marks_stay_where_they_were() -> None:
    trace = trace_of(*BORN, (0, DEATH), (1, DEATH), (2, DEATH))
    trace.marks += [(7, "optimizer"), (8, "end")]
    assert sums_in_place(trace).marks == [(0, "backward"), (3, "optimizer"), (4, "end")]


class Residual(nn.Module):
    """Each norm's gradient meets that of the way around it."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(x * 2)
        for norm in self.norms:
            x = x + norm(x)
        return x


def test_a_residual_network_adds_its_gradients_in_place() -> None:
    job = Job(
        Residual, lambda n: ((torch.empty(n, 256, requires_grad=True),), {}), lambda out: out.mean(),
        torch.optim.AdamW, "32", 1, None,
    )  # fmt: skip
    trace = trace_steps(job, 64, H200, (2, 11))
    born = [n for n, size in trace.events if size > 0 and trace.storages[n].operator == SUM]
    left = [n for n, size in sums_in_place(trace).events if size > 0 and trace.storages[n].operator == SUM]
    in_backward = [n for n in born if trace.storages[n].phase == "backward"]
    assert in_backward
    assert len(left) < len(born)
    assert [n for n in left if trace.storages[n].phase == "forward"] == [
        n for n in born if trace.storages[n].phase == "forward"
    ]
