import signal
import tempfile
from dataclasses import replace

import pytest
import torch
from helpers.clock import Clock
from torch import nn

import brim
from brim.bench import step_rate
from brim.bench.step_rate import LONGEST_WARM_UP, WARM_UP, is_settled, measure_step_rate
from brim.engine.trainer import run_now
from brim.errors import ConfigError

BATCH, BATCHES = 4, 8


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time passes in the steps of sleepers alone."""
    Sleeper.clock = Clock()
    monkeypatch.setattr(step_rate, "time", Sleeper.clock)
    return Sleeper.clock


class Sleeper(nn.Module):
    """A step that takes as long as it is told, counted."""

    clock: Clock

    def __init__(self, seconds=0.005):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.seconds = seconds
        self.steps = 0

    def calculate_loss(self, batch):
        self.clock.sleep(self.seconds)
        self.steps += 1
        return (batch[0] @ self.weight).square().mean()


def trainer_of(model, samples=BATCH * BATCHES, **settings):
    data = brim.Loader((torch.zeros(samples, 3),), BATCH)
    defaults = {"device": "cpu", "threads": 1, "epochs": 1_000_000, "checkpoint_every": 1_000_000_000}
    return brim.Trainer(model, data, **{**defaults, **settings})


def test_a_step_that_takes_longer_has_a_lower_rate_and_the_rate_is_what_the_clock_says():
    fast, slow = (measure_step_rate(trainer_of(Sleeper(seconds)), 0.4) for seconds in (0.005, 0.02))
    assert fast.samples_per_second == pytest.approx(BATCH / 0.005)
    assert slow.samples_per_second == pytest.approx(BATCH / 0.02)


def test_the_warm_up_is_not_timed():
    class SlowAtFirst(Sleeper):
        def calculate_loss(self, batch):
            self.seconds = 0.05 if self.steps < WARM_UP else 0.001
            return super().calculate_loss(batch)

    model = SlowAtFirst()
    assert measure_step_rate(trainer_of(model), 0.2).samples_per_second == pytest.approx(BATCH / 0.001)
    assert model.steps > WARM_UP


def test_samples_are_counted_and_not_batches():
    """Half of the batches hold one sample instead of four."""
    rate = measure_step_rate(trainer_of(Sleeper(0.01), BATCH + 1), 0.4)
    assert rate.samples_per_second == pytest.approx((BATCH + 1) / 2 / 0.01, rel=0.05)


def test_no_checkpoint_no_evaluation_and_nothing_left_behind(tmp_path, monkeypatch):
    def forbidden(*_):
        raise AssertionError("a run that is measured neither saves nor evaluates")

    monkeypatch.setattr("brim.engine.checkpoints.saver.Saver.save", forbidden)
    monkeypatch.setattr("brim.engine.run.run_evaluations.RunEvaluations.evaluate", forbidden)
    trainer = trainer_of(Sleeper(), eval_data=brim.Loader((torch.zeros(8, 3),), 4), eval_every=1_000_000)
    before = signal.getsignal(signal.SIGINT)
    measure_step_rate(trainer, 0.05)
    assert signal.getsignal(signal.SIGINT) is before
    left = [path.name for path in tmp_path.rglob("*/*")]
    assert all(name.startswith("torchinductor_") for name in left)  # torch's own, of its first use in this process
    assert "batches" not in vars(trainer.train_data)


def test_ctrl_c_ends_it_at_once_and_leaves_nothing(tmp_path, capfd):
    class Pressed(Sleeper):
        def calculate_loss(self, batch):
            if self.steps == 5:
                signal.raise_signal(signal.SIGINT)
                raise AssertionError("the interpreter went on")
            return super().calculate_loss(batch)

    trainer = trainer_of(Pressed())
    with pytest.raises(KeyboardInterrupt):
        measure_step_rate(trainer, 0.2)
    assert "with a checkpoint" not in capfd.readouterr().err
    left = [path.name for path in tmp_path.rglob("*/*")]
    assert all(name.startswith("torchinductor_") for name in left)  # torch's own, of its first use in this process


def test_a_torch_data_loader_can_be_measured_too():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(32, 3)), batch_size=BATCH)
    trainer = brim.Trainer(Sleeper(0.001), loader, device="cpu", threads=1, epochs=1_000_000)
    assert measure_step_rate(trainer, 0.05).samples_per_second == pytest.approx(BATCH / 0.001)


def test_threads_are_decided_before_the_clock_starts(monkeypatch):
    monkeypatch.setattr("brim.engine.step.threads.usable_cores", lambda: 2)
    monkeypatch.setattr("brim.engine.step.threads.TRIAL_SECONDS", 0.2)
    trainer = trainer_of(Sleeper(0.001), threads="auto")
    rate = measure_step_rate(trainer, 0.05)
    assert is_settled(trainer)
    assert rate.threads == run_now(trainer).state.progress.threads


def test_a_run_that_ends_before_it_is_timed_is_refused():
    with pytest.raises(ConfigError, match="the run ended after 8 batches, before it could be timed"):
        measure_step_rate(trainer_of(Sleeper(), epochs=1), 1.0)


def test_a_step_that_has_to_be_captured_and_never_is_ends_in_a_refusal(monkeypatch):
    trainer = trainer_of(Sleeper())
    vars(trainer)["settings"] = replace(trainer.settings, capture="require")  # which needs a GPU to be made with
    monkeypatch.setattr("brim.bench.step_rate.is_settled", lambda trainer: False)
    with pytest.raises(ConfigError, match=f"no step was captured in the first {LONGEST_WARM_UP} batches"):
        measure_step_rate(trainer, 0.05)


def test_errors_of_the_model_come_through_and_the_feed_is_as_it_was():
    class Failing(Sleeper):
        def calculate_loss(self, batch):
            raise ZeroDivisionError("by zero")

    trainer = trainer_of(Failing())
    with pytest.raises(ZeroDivisionError):
        measure_step_rate(trainer, 0.05)
    assert "batches" not in vars(trainer.train_data)


def test_without_a_gpu_there_is_nothing_to_profile():
    assert measure_step_rate(trainer_of(Sleeper()), 0.05, profiled=True).gpu_busy is None
