"""One rank is asked to stop, or meets a number that is not finite: all do the same, after the same step."""

import os
import signal
from pathlib import Path

import pytest
import torch
from rank_training import ROUNDING, SAMPLES, X, Y, are_the_same_bits, columns, difference, this_rank, train
from safetensors.torch import load_file

import brim

END, STOP = 30, 12


class AtStep(brim.Callback):
    """Does something after a step, on some of the ranks."""

    def __init__(self, step, ranks, act):
        self.step, self.ranks, self.act = step, ranks, act

    def on_step_end(self, trainer, step, loss):
        if step == self.step and this_rank() in self.ranks:
            self.act(trainer)


def send(number):
    return lambda trainer: os.kill(os.getpid(), number)


def run_until_signal(ranks, number=signal.SIGTERM, step=STOP, evaluates=False, **settings):
    if evaluates:
        settings["eval_data"] = settings["test_data"] = brim.Loader((X[:50], Y[:50]), 16)
    return train(callbacks=[AtStep(step, ranks, send(number))], max_steps=END, optimizer="AdamW", lr=1e-2, **settings)


def last_checkpoint(run):
    return max(path.name for path in (Path(run) / "checkpoints").glob("step-*"))


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("ranks", "evaluates"),
    [
        ([0, 1, 2], False),
        ([0, 1, 2], True),
        pytest.param([0], False),
        pytest.param([1], False),
        pytest.param([0], True),
        pytest.param([2], True),
    ],
)
def test_a_signal_to_any_rank_stops_all_with_a_checkpoint(launch, tmp_path, ranks, evaluates):
    run = str(tmp_path / "run")
    outcomes = launch.outcomes(3, run_until_signal, ranks=ranks, run_dir=run, evaluates=evaluates)
    assert [outcome.error for outcome in outcomes] == ["Preempted"] * 3
    assert len({outcome.message.split(";")[0].split("after")[1] for outcome in outcomes}) == 1
    assert last_checkpoint(run) in ("step-000000012", "step-000000013")


def test_what_was_stopped_by_a_signal_goes_on_to_the_same_weights(launch, tmp_path):
    run = str(tmp_path / "run")
    launch.outcomes(2, run_until_signal, ranks=[0, 1], run_dir=run)
    straight = launch(2, run_until_signal, ranks=[])
    resumed = launch(2, run_until_signal, ranks=[], run_dir=run, resume=run)
    assert all(are_the_same_bits(one, other) for one, other in zip(straight, resumed, strict=True))


def test_a_signal_to_one_rank_in_the_last_step_ends_all_alike(launch, tmp_path):
    run = str(tmp_path / "run")
    outcomes = launch.outcomes(2, run_until_signal, ranks=[1], step=END, evaluates=True, run_dir=run)
    assert len({outcome.error for outcome in outcomes}) == 1
    assert last_checkpoint(run) == f"step-{END:09d}"


def run_until_stopped(ranks, step=STOP, **settings):
    return train(callbacks=[AtStep(step, ranks, lambda trainer: trainer.stop("enough"))], max_steps=END, **settings)


def test_stopping_on_one_rank_stops_all_after_the_same_step(launch):
    trained = launch(3, run_until_stopped, ranks=[1])
    assert len({of_rank["steps"] for of_rank in trained}) == 1
    assert trained[0]["steps"] in (STOP, STOP + 1)
    other = "another rank was asked to stop"
    assert [of_rank["ended"] for of_rank in trained] == [other, "enough", other]
    assert all(are_the_same_bits(of_rank, trained[0]) for of_rank in trained)


@pytest.mark.slow
def test_stopping_on_all_ranks_stops_where_one_rank_would(launch):
    (alone,) = launch(1, run_until_stopped, ranks=[0])
    trained = launch(2, run_until_stopped, ranks=[0, 1])
    assert [of_rank["steps"] for of_rank in trained] == [alone["steps"]] * 2 == [STOP] * 2


class StopAtEpoch(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        if epoch == 2:
            trainer.stop("two are enough")


def run_two_epochs():
    return train(columns(16), epochs=9, max_steps=None, callbacks=[StopAtEpoch()])


@pytest.mark.slow
def test_stopping_after_an_epoch_makes_no_further_step(launch):
    (alone,) = launch(1, run_two_epochs)
    for of_rank in launch(2, run_two_epochs):
        assert of_rank["steps"] == alone["steps"]


BAD_SAMPLE = 100


def with_bad_sample(on_nan, max_steps=20, **settings):
    """One sample whose numbers overflow: it is in the share of one rank, in each epoch of another."""
    x = X.clone()
    x[BAD_SAMPLE] = torch.nan
    return train(
        brim.Loader((x, Y), 16), on_nan=on_nan, max_steps=max_steps, checkpoint_every=3, optimizer="AdamW", **settings
    )


def step_of_bad_sample():
    order = [int(n) for batch in brim.Loader(torch.arange(SAMPLES), 16).batches(0, 0) for n in batch]
    return order.index(BAD_SAMPLE) // 16 + 1


def test_a_bad_number_on_one_rank_stops_all(launch):
    outcomes = launch.outcomes(4, with_bad_sample, on_nan="stop")
    assert [outcome.error for outcome in outcomes] == ["BadNumbers"] * 4
    for outcome in outcomes:
        assert f"step {step_of_bad_sample()} (epoch 1" in outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("on_nan", ["skip", "rewind"])
def test_a_bad_number_on_one_rank_is_left_out_by_all(launch, on_nan):
    (alone,) = launch(1, with_bad_sample, on_nan=on_nan)
    ranks = launch(4, with_bad_sample, on_nan=on_nan)
    for of_rank in ranks:
        assert difference(of_rank, alone) <= ROUNDING
        assert of_rank["steps"] == alone["steps"]
        assert are_the_same_bits(of_rank, ranks[0])


def test_a_bad_batch_is_kept_whole_or_by_rank(launch):
    """Each rank has its share of it at hand; written to one file, the last one would be all that is left."""
    launch.outcomes(2, with_bad_sample, on_nan="stop")
    run = launch.folder / f"launch-{launch.launches}" / "run"
    kept = sorted(path.relative_to(run).as_posix() for path in run.rglob("bad-batches/*.safetensors"))
    samples = sum(len(load_file(run / path)["0.0"]) for path in kept)
    assert samples == 16, kept
