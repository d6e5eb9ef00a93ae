"""Schedules in a run: stepped in the unit that they are written in, as a plain loop does, and after a resume."""

import json
from pathlib import Path

import pytest
import torch
from helpers.callbacks import StopAt
from helpers.small_training import X, Y, net, sgd
from helpers.weights import weights
from torch import nn
from torch.optim import lr_scheduler as lrs

import brim
from brim.errors import ConfigError, RunFolderError

pytestmark = pytest.mark.usefixtures("own_folder")


def halves(optimizer):
    return lrs.StepLR(optimizer, 2, gamma=0.5)


def trainer(model, **settings):
    settings = {"scheduler": halves, "epochs": 6, **settings}
    fixed = {"loss_fn": nn.MSELoss(), "optimizer": sgd, "device": "cpu", "threads": 1, "run_dir": "run"}
    return brim.Trainer(model, brim.Loader((X, Y), batch_size=8), **{**fixed, **settings})


def plain_loop(make, every, epochs=6):
    model = net()
    optimizer, loader = sgd(model.parameters()), brim.Loader((X, Y), batch_size=8)
    scheduler = make(optimizer)
    torch.manual_seed(0)
    for epoch in range(epochs):
        for x, y in loader.batches(0, epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if every == "step":
                scheduler.step()
        if every == "epoch":
            scheduler.step()
    return weights(model)


def events(kind):
    lines = [json.loads(line) for line in Path("run/events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize(
    ("make", "asked", "counted"),
    [
        (halves, None, "epoch"),
        (halves, "step", "step"),
        (lambda o: lrs.CosineAnnealingLR(o, 6), None, "epoch"),
        (lambda o: lrs.CosineAnnealingLR(o, 30), None, "step"),
        (lambda o: lrs.LinearLR(o, 0.1, total_iters=10), "epoch", "epoch"),
    ],
)
def test_a_schedule_is_stepped_as_in_the_plain_loop(make, asked, counted):
    model = net()
    trainer(model, scheduler=make, scheduler_every=asked).fit()
    assert torch.equal(weights(model), plain_loop(make, counted))
    assert events("schedule")[0]["unit"] == counted


def test_the_line_tells_the_unit_and_the_last_rate():
    trainer(net()).fit()
    assert events("schedule")[0]["line"] == (
        "the schedule StepLR counts epochs (scheduler_every='step' for steps): lr 0.02 now, 0.005 in the last epoch, "
        "the 6th"
    )


def test_a_schedule_of_epochs_that_changes_nothing_is_warned_about():
    trainer(net(), scheduler=lambda o: lrs.MultiStepLR(o, [100, 200])).fit()
    assert "scheduler_every='step'" in events("schedule")[1]["line"]


@pytest.mark.matrix(2)
@pytest.mark.parametrize("stop", [9, 10, 12])  # before, at and after the end of an epoch in which the rate changes
@pytest.mark.parametrize("settings", [{}, {"checkpoint_every": 5}, {"checkpoint_every": 1, "keep": 9}])
def test_a_schedule_of_epochs_resumes_to_the_bit(stop, settings):
    trainer(net(), callbacks=[StopAt(stop)], **settings).fit()
    model = net()
    trainer(model, **settings).fit(resume="run")
    assert torch.equal(weights(model), plain_loop(halves, "epoch"))


def test_a_run_goes_on_in_the_unit_it_was_begun_in():
    cosine = lambda o: lrs.CosineAnnealingLR(o, 8)  # noqa: E731
    trainer(net(), scheduler=cosine, epochs=2).fit()  # longer than the run: steps
    model = net()
    trainer(model, scheduler=cosine, epochs=10).fit(resume="run")
    assert torch.equal(weights(model), plain_loop(cosine, "step", epochs=10))
    assert "rises again" in events("schedule")[-1]["line"]
    with pytest.raises(RunFolderError, match="leave scheduler_every out"):
        trainer(net(), scheduler=cosine, epochs=12, scheduler_every="epoch").fit(resume="run")


def test_extending_a_finished_cosine_run_tells_the_rates():
    trainer(net(), scheduler="cosine", epochs=2).fit()
    trainer(net(), scheduler="cosine", epochs=4).fit(resume="run")
    warned = [line for line in events("resume") if "was to end at step 10 and ends at step 20 now" in line["line"]]
    line = events("schedule")[-1]
    assert warned and line["unit"] == "step" and line["lr"] == pytest.approx(0.01)  # half of the way
    assert line["last_lr"] < 0.001


class Rates(brim.Callback):
    """The rates that steps are made with; ``lowers`` sets the next one by hand."""

    def __init__(self, lowers=False):
        self.seen, self.lowers = {}, lowers

    def on_step_start(self, trainer, step):
        self.seen[step] = trainer.optimizer.param_groups[0]["lr"]

    def on_step_end(self, trainer, step, loss):
        if self.lowers:
            trainer.optimizer.param_groups[0]["lr"] /= 2


@pytest.mark.parametrize("log_every", [1, 3, 5, 50])
@pytest.mark.parametrize("every", ["step", "epoch", "callback"])
def test_each_line_of_numbers_has_the_rate_that_its_last_step_was_made_with(every, log_every):
    rates = Rates(lowers=every == "callback")
    schedule = {} if rates.lowers else {"scheduler": lambda o: lrs.ExponentialLR(o, 0.5), "scheduler_every": every}
    trainer(net(), **{"scheduler": None, **schedule}, callbacks=[rates], log_every=log_every, epochs=4).fit()
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    written = {line["step"]: line["lr"] for line in lines if "lr" in line}
    assert max(written) == max(rates.seen)
    assert written == {step: rates.seen[step] for step in written}


def one_cycle(total):
    return lambda optimizer: lrs.OneCycleLR(optimizer, 1e-3, total_steps=total)


def steps_of_a_run(**settings):
    return trainer(net(), scheduler=None, **settings).fit().steps


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_a_cycle_that_is_over_before_the_run_is_refused_before_anything_is_trained(every):
    length = 6 if every == "epoch" else steps_of_a_run(run_dir="before")
    with pytest.raises(
        ConfigError, match=f"is over before the run, which has {length} {every}s.*total_steps={length}:"
    ):
        trainer(net(), scheduler=one_cycle(length - 1), scheduler_every=every).fit()
    trained = trainer(net(), scheduler=one_cycle(length), scheduler_every=every)
    trained.fit()
    assert not [line for line in events("schedule") if "is not over" in line["line"]]


def test_a_cycle_that_the_run_ends_in_the_middle_of_is_warned_about():
    length = steps_of_a_run(run_dir="before")
    trainer(net(), scheduler=one_cycle(2 * length)).fit()
    (told,) = [line["line"] for line in events("schedule") if "is not over" in line["line"]]
    assert f"OneCycleLR(total_steps={2 * length}) is not over when the run ends, after {length} steps" in told


def test_a_cycle_goes_on_with_a_resumed_run_and_is_neither_refused_nor_warned_about():
    length = steps_of_a_run(run_dir="before")
    whole, parts = net(), net()
    trainer(whole, scheduler=one_cycle(length), run_dir="whole").fit()
    trainer(parts, scheduler=one_cycle(length), callbacks=[StopAt(7)]).fit()
    trainer(parts, scheduler=one_cycle(length)).fit(resume="run")
    assert torch.equal(weights(parts), weights(whole))
    assert not [line for line in events("schedule") if "is not over" in line["line"]]
