"""A run goes on with another number of ranks, in the middle of an epoch."""

import pytest
import torch
from rank_training import ROUNDING, SAMPLES, X, Y, are_the_same_bits, columns, difference, net, this_rank, train
from torch import nn

import brim
from brim.engine.trainer import run_now

STOP, END = 20, 45  # in the second epoch, in the fourth


class Seen(brim.Callback):
    """The numbers of the samples that this rank is handed, step by step."""

    def __init__(self):
        self.numbers = []

    def on_step_end(self, trainer, step, loss):
        self.numbers.append([int(n) for batch in run_now(trainer).window for n in batch[2]])


def numbered(model, batch):
    x, y, _ = batch
    return nn.functional.mse_loss(model(x), y)


def part_of_run(max_steps, resume=None, middle=(), **settings):
    seen = Seen()
    trained = train(
        brim.Loader((X, Y, torch.arange(SAMPLES)), 16), net(*middle), resume, callbacks=[seen], loss_fn=numbered,
        max_steps=max_steps, optimizer="AdamW", lr=1e-2, **settings,
    )  # fmt: skip
    return {**trained, "seen": seen.numbers}


def with_dropout(**settings):
    return part_of_run(middle=[nn.Dropout(0.3)], **settings)


def samples_of(ranks):
    """What all ranks together saw in each step."""
    return [[n for share in shares for n in share] for shares in zip(*[rank["seen"] for rank in ranks], strict=True)]


@pytest.fixture(scope="module")
def whole(launch_once):
    (alone,) = launch_once(1, part_of_run, max_steps=END)
    return alone


@pytest.mark.matrix(1)
@pytest.mark.parametrize("before", [1, 2, 4])
def test_any_number_of_ranks_goes_on_where_others_stopped(launch, whole, before, tmp_path):
    for after in (1, 2, 4):
        run = str(tmp_path / f"run-{after}")
        first = launch(before, part_of_run, max_steps=STOP, run_dir=run)
        second = launch(after, part_of_run, max_steps=END, run_dir=run, resume=run)
        assert samples_of(first) == whole["seen"][:STOP]
        assert samples_of(second) == whole["seen"][STOP:]
        for of_rank in second:
            assert of_rank["steps"] == END
            assert difference(of_rank, whole) <= ROUNDING


@pytest.mark.matrix(1)
@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_same_number_of_ranks_goes_on_to_the_bit(launch, world, tmp_path):
    straight = launch(world, with_dropout, max_steps=END)
    run = str(tmp_path / "run")
    launch(world, with_dropout, max_steps=STOP, run_dir=run)
    resumed = launch(world, with_dropout, max_steps=END, run_dir=run, resume=run)
    for one, other in zip(straight, resumed, strict=True):
        assert are_the_same_bits(one, other)
        assert other["losses"] == one["losses"][STOP:]


class Annealed:
    """Counts its calls, and draws from a generator that each rank has of its own."""

    def __init__(self):
        self.calls = 0
        self.generator = torch.Generator().manual_seed(this_rank())

    def __call__(self, model, batch):
        self.calls += 1
        noise = torch.rand((), generator=self.generator)
        return nn.functional.mse_loss(model(batch[0]), batch[1]) * noise / self.calls


def with_state_in_python(max_steps, resume=None, **settings):
    return train(columns(), net(), resume, loss_fn=Annealed(), max_steps=max_steps, sliceable=True, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_what_each_rank_keeps_in_python_goes_on(launch, strategy, tmp_path):
    straight = launch(2, with_state_in_python, max_steps=6, strategy=strategy)
    run = str(tmp_path / "run")
    launch(2, with_state_in_python, max_steps=3, run_dir=run, strategy=strategy)
    resumed = launch(2, with_state_in_python, max_steps=6, run_dir=run, resume=run, strategy=strategy)
    for one, other in zip(straight, resumed, strict=True):
        assert are_the_same_bits(one, other)


@pytest.mark.slow
def test_ranks_that_are_new_drop_numbers_of_their_own(launch, tmp_path):
    run = str(tmp_path / "run")
    launch(1, with_dropout, max_steps=STOP, run_dir=run)
    resumed = launch(4, drawn_at_first, run=run)
    assert len({tuple(numbers) for numbers in resumed}) == 4


def drawn_at_first(run):
    """The first random numbers of every rank after it resumed."""
    drawn = []

    class Draw(brim.Callback):
        def on_fit_start(self, trainer):
            drawn.extend(torch.rand(4).tolist())

    model = net(nn.Dropout(0.3))
    train(
        brim.Loader((X, Y, torch.arange(SAMPLES)), 16), model, run, callbacks=[Draw()], loss_fn=numbered,
        max_steps=STOP + 1, optimizer="AdamW", run_dir=run,
    )  # fmt: skip
    return drawn
