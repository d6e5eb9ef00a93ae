"""What a step has to do, by hand where a hand can count it."""

import pytest
import torch
from torch import nn

from brim.hardware.cards import H200, find_card
from brim.memory.forecast import make_job
from brim.memory.trace.steps import trace_steps
from brim.speed_up.work import FULL, HALF, LAUNCHES_A_CELL, TF32, Work, count_work

RUNTIME = (2, 11)
WIDTH = 256


def linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH, bias=False)


def rows(n: int):
    return (torch.empty(n, WIDTH),), {}


def work_of(model=linear, batch=rows, samples=64, card=H200, **job) -> Work:
    return count_work(make_job(model, batch, **job), samples, card, RUNTIME)[1]


def flops(work: Work, phase: str) -> float:
    return sum(operator.flops for operator in work.operators[phase])


def formats(work: Work) -> set[str]:
    return {operator.format for phase in work.operators.values() for operator in phase if operator.flops}


def test_a_linear_layer_is_one_product_forward_and_one_backward_for_its_weight() -> None:
    work = work_of()
    assert flops(work, "forward") == flops(work, "backward") == 2 * 64 * WIDTH * WIDTH  # its input needs no gradient
    assert flops(work, "optimizer") == 0
    assert work.gradients == (4 * WIDTH * WIDTH,)
    assert work.parameters == 4 * WIDTH * WIDTH
    assert work.batch == 4 * 64 * WIDTH


def test_the_optimizer_reads_and_writes_at_least_weights_gradients_and_moments() -> None:
    assert sum(operator.bytes for operator in work_of().operators["optimizer"]) >= 7 * 4 * WIDTH * WIDTH


def test_views_launch_nothing_and_take_no_bytes() -> None:
    def flat() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (2, WIDTH // 2)), nn.Flatten(), linear())

    more, plain = work_of(flat).operators["forward"], work_of().operators["forward"]
    assert len(more) > len(plain)
    assert sum(operator.launches for operator in more) == sum(operator.launches for operator in plain)


def test_an_embedding_reads_the_rows_it_gives_and_not_the_table() -> None:
    table = 4 * 100_000 * 8
    work = work_of(lambda: nn.Embedding(100_000, 8), lambda n: ((torch.zeros(n, dtype=torch.long),), {}))
    assert max(operator.bytes for operator in work.operators["forward"]) < table / 100


@pytest.mark.parametrize(
    ("precision", "card", "computed_in"),
    [
        ("32", "H200", FULL),
        ("tf32", "H200", TF32),
        ("tf32", "Tesla T4", FULL),
        ("bf16", "H200", HALF),
        ("fp16", "Tesla T4", HALF),
    ],
)
def test_products_are_computed_in_what_precision_and_card_say(precision: str, card: str, computed_in: str) -> None:
    assert formats(work_of(card=find_card(card), precision=precision)) == {computed_in}


def test_convolutions_take_tf32_where_torch_lets_them() -> None:
    def image(n: int):
        return (torch.empty(n, 3, 8, 8),), {}

    assert formats(work_of(lambda: nn.Conv2d(3, 4, 3), image)) == {TF32}
    assert formats(work_of(lambda: nn.Conv2d(3, 4, 3), image, card=find_card("Tesla T4"))) == {FULL}


def test_a_recurrent_layer_has_cells_for_each_step_and_layer() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(16, 32, 2, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0][:, -1]

    work = work_of(Last, lambda n: ((torch.empty(n, 30, 16),), {}), samples=8)
    (cells,) = [operator for operator in work.operators["backward"] if operator.recurrent]
    assert cells.launches == LAUNCHES_A_CELL * 30 * 2
    assert cells.flops >= 6 * 8 * 30 * (4 * 32 * (16 + 32) + 4 * 32 * (32 + 32))


def test_products_grow_with_the_batch_and_the_optimizer_does_not() -> None:
    small, large = work_of(samples=64), work_of(samples=256)
    assert flops(large, "forward") == 4 * flops(small, "forward")
    assert large.operators["optimizer"] == small.operators["optimizer"]


def test_one_step_is_counted_whatever_it_accumulates() -> None:
    once, twice = work_of(), work_of(accumulation=2)
    assert (once.passes, twice.passes) == (1, 2)
    assert flops(twice, "forward") == 2 * flops(once, "forward")
    assert len(twice.operators["optimizer"]) == len(once.operators["optimizer"])


def test_frozen_parameters_are_sent_to_replicas_and_have_no_gradient() -> None:
    def half_frozen() -> nn.Module:
        model = nn.Sequential(linear(), linear())
        model[0].requires_grad_(False)
        return model

    work = work_of(half_frozen)
    assert (work.parameters, sum(work.gradients)) == (8 * WIDTH * WIDTH, 4 * WIDTH * WIDTH)
    assert (work.blocks, work.modules) == (2, 3)


def test_the_trace_that_comes_with_it_is_that_of_a_memory_forecast() -> None:
    job = make_job(linear, rows)
    counted, plain = count_work(job, 64, H200, RUNTIME)[0], trace_steps(job, 64, H200, RUNTIME)
    assert counted.events == plain.events
    assert counted.marks == plain.marks
