"""What happens between steps, in which order, and that it makes no difference where a run was interrupted."""

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.faults import ran_out
from helpers.weights import weights
from torch import nn

import brim
from brim.engine.run import training_run
from brim.engine.run_state.progress import Progress
from brim.engine.trainer import run_now
from brim.errors import CannotFit

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X = torch.randn(40, 4)
Y = X.sin().sum(1, keepdim=True)
EPOCH = 5  # steps


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def loaded(run):
    return weights(brim.load(run, net(seed=9)))


def trainer(model, **settings):
    settings = {
        "loss_fn": nn.MSELoss(), "optimizer": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "device": "cpu",
        "threads": 1, "epochs": 3, "run_dir": "run", **settings,
    }  # fmt: skip
    return brim.Trainer(model, brim.Loader((X, Y), batch_size=8), **settings)


class At(brim.Callback):
    """Does something after one step."""

    def __init__(self, step, do):
        self.step, self.do = step, do

    def on_step_end(self, trainer, step, loss):
        if step == self.step:
            self.do(trainer)


def stop(trainer):
    trainer.stop("for a while")


def die(trainer):
    raise SystemError("killed")


class Shrink(brim.Callback):
    """Changes weights and learning rate after every epoch, as averaging, pruning and schedules by hand do."""

    def on_epoch_end(self, trainer, epoch):
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.mul_(0.9)
        for group in trainer.optimizer.param_groups:
            group["lr"] *= 0.5


class Scores:
    """Evaluation data whose verdict is a function of how often it was asked, and that notes what it was shown."""

    monitor, higher_is_better = "score", True

    def __init__(self, scores):
        self.scores, self.seen = scores, []

    def evaluate(self, model):
        self.seen.append(weights(model).clone())
        return {"score": self.scores[len(self.seen) - 1]}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("at", [6, 9, 10, 11])
@pytest.mark.parametrize("checkpoint_every", [None, 2, 5])
def test_a_run_that_dies_is_resumed_with_what_callbacks_did_at_the_end_of_epochs(at, checkpoint_every):
    settings = {"checkpoint_every": checkpoint_every}
    trainer(whole := net(), run_dir="whole", callbacks=[Shrink()], **settings).fit()
    with pytest.raises(SystemError):
        trainer(net(), callbacks=[Shrink(), At(at, die)], **settings).fit()
    trainer(resumed := net(seed=1), callbacks=[Shrink()], **settings).fit(resume="auto")
    assert torch.equal(weights(resumed), weights(whole))


def test_what_the_last_end_of_an_epoch_changes_is_in_the_run_folder():
    trainer(model := net(), callbacks=[Shrink()]).fit()
    assert torch.equal(loaded("run"), weights(model))


@pytest.mark.parametrize("checkpoint_every", [1, EPOCH])
def test_so_it_is_where_the_last_step_has_a_checkpoint_already(checkpoint_every):
    trainer(model := net(), callbacks=[Shrink()], checkpoint_every=checkpoint_every).fit()
    assert torch.equal(loaded("run"), weights(model))


@pytest.mark.parametrize("scores", [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
def test_the_best_weights_are_those_that_were_evaluated(scores):
    data = Scores(scores)
    trainer(model := net(), eval_data=data, callbacks=[Shrink()]).fit()
    assert torch.equal(weights(model), data.seen[scores.index(3.0)])
    assert torch.equal(loaded("run"), weights(model))


class Zero(brim.Callback):
    def on_fit_end(self, trainer):
        with torch.no_grad():
            trainer.model[0].weight.zero_()


class Look(brim.Callback):
    def on_fit_end(self, trainer):
        weights(trainer.model)


@pytest.mark.parametrize("evaluates", [False, True])
def test_what_is_changed_at_the_end_of_a_run_is_in_its_folder_and_not_in_a_run_that_goes_on(evaluates, tmp_path):
    data = Scores([3.0, 2.0, 1.0, 4.0]) if evaluates else None
    trainer(model := net(), eval_data=data, callbacks=[Zero()]).fit()
    assert not model[0].weight.any()
    assert torch.equal(loaded("run"), weights(model))
    trainer(net(seed=1), eval_data=data, epochs=4).fit(resume="auto")
    assert not (tmp_path / "run" / "checkpoints" / "final").exists()  # it was of the run that ended before
    data = Scores([3.0, 2.0, 1.0, 4.0]) if evaluates else None
    trainer(straight := net(), eval_data=data, epochs=4, run_dir="straight").fit()
    assert torch.equal(loaded("run"), weights(straight))


def test_a_callback_that_only_looks_costs_no_second_copy_of_the_weights(tmp_path):
    trainer(net(), callbacks=[Look()]).fit()
    assert not (tmp_path / "run" / "checkpoints" / "final").exists()


class Steps(brim.Callback):
    """At which steps there were evaluations."""

    def __init__(self):
        self.steps = []

    def on_evaluate(self, trainer, metrics):
        self.steps.append(run_now(trainer).state.progress.step)


def plateau(optimizer):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=0.2)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("at", [3, 5, 7, 10, 13])
@pytest.mark.parametrize("eval_every", [1, 2, "3 steps"])
@pytest.mark.parametrize("how", ["callback", "max_steps", "killed"])
def test_a_stopped_run_has_the_evaluations_of_one_that_was_not(at, eval_every, how):
    settings = {"eval_data": (X, Y), "eval_every": eval_every, "scheduler": plateau, "epochs": 4}
    trainer(whole := net(), run_dir="whole", callbacks=[straight := Steps()], **settings).fit()
    first, second = Steps(), Steps()
    if how == "killed":
        with pytest.raises(SystemError):
            trainer(net(), callbacks=[first, At(at, die)], checkpoint_every=1, **settings).fit()
    else:
        ends = {"max_steps": at} if how == "max_steps" else {}
        trainer(net(), callbacks=[first, *([At(at, stop)] if how == "callback" else [])], **settings, **ends).fit()
    run = trainer(resumed := net(seed=1), callbacks=[second], **settings)
    run.fit(resume="auto")
    if how == "callback":
        assert first.steps + second.steps == straight.steps
    assert set(straight.steps) <= {*first.steps, *second.steps}
    assert torch.equal(weights(resumed), weights(whole))
    progress = run_now(run).state.progress
    assert progress.best_step in straight.steps
    other = trainer(net(), run_dir="whole", **settings)
    other.fit(resume="auto")
    assert progress.to_json() == run_now(other).state.progress.to_json()


def test_patience_is_not_used_up_by_stopping():
    settings = {"patience": 2, "epochs": 9}
    scores = [1.0, 3.0, 2.0, 2.0, 2.0, 2.0]
    straight = trainer(net(), run_dir="whole", eval_data=Scores(scores), **settings).fit()
    data = Scores(scores)
    for at in (7, 12, 17):
        trainer(net(), eval_data=data, callbacks=[At(at, stop)], **settings).fit(resume="auto")
    result = trainer(net(), eval_data=data, **settings).fit(resume="auto")
    assert (result.steps, result.metrics) == (straight.steps, straight.metrics) == (4 * EPOCH, {"score": 3.0})


def test_a_run_that_is_done_is_judged_once_more_where_its_last_step_was_not():
    data = Scores([1.0, 2.0])
    result = trainer(model := net(), eval_data=data, max_steps=7).fit()
    assert result.metrics == {"score": 2.0}
    assert torch.equal(weights(model), data.seen[1])
    assert torch.equal(loaded("run"), weights(model))


def test_one_whose_last_step_is_worse_goes_back_to_its_best():
    data = Scores([2.0, 1.0])
    result = trainer(model := net(), eval_data=data, max_steps=7).fit()
    assert result.metrics == {"score": 2.0}
    assert torch.equal(weights(model), data.seen[0])
    assert torch.equal(loaded("run"), weights(model))


def test_a_run_whose_steps_end_with_an_epoch_ends_that_epoch():
    class Epochs(brim.Callback):
        ended = 0

        def on_epoch_end(self, trainer, epoch):
            self.ended = epoch

    result = trainer(net(), max_steps=2 * EPOCH, callbacks=[epochs := Epochs()]).fit()
    assert (result.epochs, epochs.ended) == (2, 2)


def test_a_finished_run_that_is_resumed_is_not_changed():
    data = Scores([1.0, 3.0, 2.0])
    first = trainer(one := net(), eval_data=data).fit()
    second = trainer(other := net(seed=1), eval_data=data).fit(resume="auto")
    assert len(data.seen) == 3
    assert (first.steps, first.metrics) == (second.steps, second.metrics)
    assert torch.equal(weights(one), weights(other))


class TwoScores(Scores):
    """``cost`` is far below ``score``; both get better until the end, where lower is better."""

    monitor, higher_is_better = "cost", False

    def evaluate(self, model):
        score = super().evaluate(model)["score"]
        return {"score": score, "cost": score / 100}


@pytest.mark.parametrize("other", [{"monitor": "score", "mode": "min"}, {"monitor": "cost", "mode": "max"}])
def test_the_best_by_another_metric_is_not_compared_with(other):
    scores = [9.0, 8.0, 7.0, 6.0] if other["mode"] == "min" else [9.0, 1.0, 2.0, 3.0]
    plateau = {"scheduler": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0)}
    trainer(net(), eval_data=TwoScores(scores[:2]), epochs=2, keep_best=2, **plateau).fit()
    data = TwoScores(scores[2:])
    again = trainer(model := net(), eval_data=data, epochs=4, patience=1, keep_best=2, **other, **plateau)
    result = again.fit(resume="auto")
    assert Path("run/log.txt").read_text().count("begin anew") == 1
    assert result.metrics["score"] == scores[-1] and result.steps == 4 * EPOCH
    assert torch.equal(weights(model), data.seen[-1]) and torch.equal(loaded("run"), weights(model))
    progress, schedule = run_now(again).state.progress, again.scheduler
    assert [step for step, _ in progress.ranked] == [4 * EPOCH, 3 * EPOCH]
    assert schedule.best == progress.best and schedule.mode == other["mode"]


def test_the_best_weights_by_another_metric_are_not_those_of_the_run():
    trainer(net(), eval_data=TwoScores([1.0, 2.0]), epochs=2).fit()
    result = trainer(model := net(), epochs=2, eval_data=TwoScores([]), monitor="score", mode="max").fit(resume="auto")
    assert result.metrics["score"] == 2.0 and torch.equal(loaded("run"), weights(model))


def test_the_same_metric_goes_on_and_so_does_one_of_an_earlier_version():
    trainer(net(), eval_data=TwoScores([1.0, 2.0]), epochs=2).fit()
    result = trainer(net(), eval_data=TwoScores([3.0]), epochs=3, monitor="cost", mode="min").fit(resume="auto")
    assert result.metrics["score"] == 1.0 and "begin anew" not in Path("run/log.txt").read_text()
    old = Progress.from_json({"best": 2.0, "evaluations_since_best": 1})
    assert not old.follow("score", True) and (old.best, old.evaluations_since_best) == (2.0, 1)


def test_an_evaluation_that_fails_for_want_of_memory_is_made_by_the_run_that_goes_on():
    class Once(Scores):
        def evaluate(self, model):
            if not self.seen:
                self.seen.append(None)
                raise ran_out()
            return super().evaluate(model)

    class Epochs(brim.Callback):
        def __init__(self):
            self.ended = []

        def on_epoch_end(self, trainer, epoch):
            self.ended.append(epoch)

    epochs, data = Epochs(), Once([0.0, 1.0, 2.0, 3.0])
    with pytest.raises(CannotFit):
        trainer(net(), eval_data=data, callbacks=[epochs]).fit()
    result = trainer(net(), eval_data=data, callbacks=[epochs]).fit(resume="auto")
    assert epochs.ended == [1, 2, 3] and len(data.seen) == 4 and result.metrics == {"score": 3.0}


def test_the_evaluators_own_batch_size_is_as_it_was_after_a_run():
    class Large(Scores):
        batch_size = 64

        def evaluate(self, model):
            if self.batch_size > 16:
                raise ran_out()
            return super().evaluate(model)

    data = Large([1.0, 2.0, 3.0])
    trainer(net(), eval_data=data).fit()
    assert data.batch_size == 64 and len(data.seen) == 3


def test_members_of_an_ensemble_start_with_weights_of_their_own():
    torch.manual_seed(42)
    expected = [nn.Linear(4, 1).weight for _ in range(3)]
    torch.manual_seed(42)
    for number, start in enumerate(expected):
        model = nn.Linear(4, 1)
        assert torch.equal(model.weight, start)
        trainer(model, run_dir=f"member-{number}", eval_data=(X, Y)).fit()


def test_so_do_models_that_are_made_after_a_run_that_failed():
    torch.manual_seed(42)
    expected, model = nn.Linear(4, 1).weight, nn.Linear(4, 1)
    torch.manual_seed(42)
    with pytest.raises(SystemError):
        trainer(model, callbacks=[At(2, die)]).fit()
    assert torch.equal(nn.Linear(4, 1).weight, expected)


def epoch_lines(run="run"):
    events = [json.loads(line) for line in (Path(run) / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["kind"] == "epoch"]


def test_the_line_of_an_epoch_that_was_resumed_has_the_mean_and_the_time_of_all_of_it():
    trainer(net(), run_dir="whole", epochs=2).fit()
    trainer(net(), epochs=2, callbacks=[At(8, lambda trainer: (time.sleep(0.2), trainer.stop("for a while")))]).fit()
    trainer(net(seed=1), epochs=2).fit(resume="auto")
    whole, parts = epoch_lines("whole"), epoch_lines()
    assert [line["loss"] for line in parts] == pytest.approx([line["loss"] for line in whole], rel=1e-12)
    assert parts[1]["seconds"] >= 0.2


def test_a_run_that_is_resumed_at_its_end_within_an_epoch_has_the_time_of_that_epoch(monkeypatch):
    monkeypatch.setattr(training_run, "perf_counter", lambda: 1e6)
    for resume in (None, "auto"):
        trainer(net(), max_steps=8).fit(resume=resume)
        saved = json.loads(Path("run/checkpoints/step-000000008/progress.json").read_text())
        assert saved["epoch_seconds"] == 0


def test_the_line_of_an_epoch_with_steps_that_are_made_again_counts_each_once():
    losses = []

    class Note(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            losses.append((step, loss.item()))

        def on_load(self, trainer, step):
            once_bad.calls = 10  # it is put back with the rest

    def once_bad(model, batch):
        once_bad.calls += 1
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        return loss * float("nan") if once_bad.calls == 4 else loss

    once_bad.calls = 0
    settings = {"on_nan": "rewind", "checkpoint_every": 2, "epochs": 1, "sliceable": True, "micro_batch": 8}
    trainer(net(), loss_fn=once_bad, callbacks=[Note()], **settings).fit()
    (line,) = epoch_lines()
    made = dict(losses)
    assert [step for step, _ in losses] == [1, 2, 3, 3, 4, 5]
    assert line["loss"] == pytest.approx(sum(made.values()) / EPOCH)


def test_evaluations_every_so_many_steps_have_a_line_each(capsys):
    trainer(net(), eval_data=(X, Y), eval_every="2 steps", epochs=1).fit()
    told = capsys.readouterr().err.splitlines()
    found = [line.split(": eval loss")[0] for line in told if ": eval loss" in line]
    assert found == ["step 2", "step 4", "step 5"]
    assert all("(best so far)" in line for line in told if ": eval loss" in line)


def test_the_lines_of_a_run_fit_into_a_terminal_and_the_log_has_all_metrics(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as rich takes a terminal
    monkeypatch.setenv("COLUMNS", "80")
    metrics = {f"metric_{number}": lambda outputs, batch: (outputs - batch[1]).abs() for number in range(6)}
    watched = {"monitor": "metric_5", "mode": "min"}
    trainer(net(), eval_data=(X, Y), metrics=metrics, epochs=2, run_dir=tmp_path / "run", **watched).fit()
    told = re.findall(r"(?:epoch 1|done): .*", capsys.readouterr().err)
    assert len(told) == 2 and all(len(line) <= 80 and " more" in line for line in told)
    assert "eval metric_5 " in told[0]
    assert (tmp_path / "run/log.txt").read_text().count("metric_5") == 3


def test_why_a_run_ended_early_is_said_once(tmp_path, capsys):
    numbers = iter(range(1000))
    rising = {"rising": lambda outputs, batch: next(numbers)}
    settings = {"metrics": rising, "monitor": "rising", "mode": "min", "patience": 1, "epochs": 9}
    trainer(net(), eval_data=(X, Y), run_dir=tmp_path / "run", **settings).fit()
    assert capsys.readouterr().err.count("no better evaluation") == 1


# What a step that is left out does not move, and what an evaluation within a run does not log


def with_a_bad_batch(number=3, samples=8):
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(samples, 4, generator=generator), torch.randn(samples, 1)) for _ in range(6)]
    batches[number - 1][0][0] = float("nan")
    return batches


@pytest.mark.parametrize("ema", [None, 0.5])
def test_a_step_that_is_left_out_is_no_step_of_the_schedule(tmp_path, ema):
    def slower(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    class Rates(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    rates, batches = [], with_a_bad_batch()
    torch.manual_seed(0)
    model, twin = nn.Linear(4, 1), nn.Linear(4, 1)
    twin.load_state_dict(model.state_dict())
    brim.Trainer(
        model, batches, loss_fn=nn.MSELoss(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1), scheduler=slower,
        on_nan="skip", ema=ema, device="cpu", threads=1, run_dir=tmp_path / "run", callbacks=[Rates()],
    ).fit()  # fmt: skip
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    scheduler, expected = slower(optimizer), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(twin(x), y)
        loss.backward()
        if loss.isfinite():
            optimizer.step()
            scheduler.step()
        expected.append(optimizer.param_groups[0]["lr"])
    assert rates == expected
    assert ema is not None or torch.equal(model.weight, twin.weight)


@pytest.mark.parametrize("hook", ["on_fit_start", "on_step_end", "on_evaluate", "on_epoch_end"])
def test_what_an_evaluation_of_a_callback_logs_is_in_no_line_of_training(tmp_path, hook):
    def loss_fn(model, batch):
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        trainer.log("mine", loss)
        return loss

    class Evaluates(brim.Callback):
        pass

    def evaluate(self, trainer, *_):
        trainer.evaluate()
        trainer.predict(held_out[0][0])

    setattr(Evaluates, hook, evaluate)
    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator)) for _ in range(3)]
    held_out = [(x + 5, y + 9) for x, y in data]
    trainer = brim.Trainer(
        nn.Linear(4, 1), data, held_out, loss_fn=loss_fn, device="cpu", threads=1, log_every=1, epochs=2,
        run_dir=tmp_path / "run", callbacks=[Evaluates()],
    )  # fmt: skip
    trainer.fit()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = [(line["mine"], line.get("loss")) for line in lines if "mine" in line]
    assert len(found) == 6 and all(mine == loss for mine, loss in found)


def test_what_is_logged_when_a_run_goes_back_is_written(tmp_path):
    class Logs(brim.Callback):
        def on_load(self, trainer, step):
            trainer.log("loaded", float(step))

    brim.Trainer(
        nn.Linear(4, 1), with_a_bad_batch(4), loss_fn=nn.MSELoss(), on_nan="rewind", checkpoint_every=2, log_every=1,
        device="cpu", threads=1, run_dir=tmp_path / "run", callbacks=[Logs()],
    ).fit()  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loaded"] for line in lines if "loaded" in line] == [2.0]


def test_what_a_callback_writes_to_numpys_memory_is_in_the_next_batch(tmp_path):
    x, y, seen = np.ones((24, 3), np.float32), np.ones((24, 1), np.float32), []

    class Grows(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            x[:] = step + 1

    def loss_fn(model, batch):
        seen.append(int(batch[0][0, 0]))
        return model(batch[0]).square().mean()

    brim.Trainer(
        nn.Linear(3, 1), brim.Loader((x, y), 4), loss_fn=loss_fn, device="cpu", threads=1, epochs=2, sliceable=False,
        run_dir=tmp_path / "run", loggers=False, callbacks=[Grows()],
    ).fit()  # fmt: skip
    assert seen == list(range(1, 13))
