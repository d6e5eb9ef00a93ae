"""Whole runs: none is lost, and each trains what it was asked to train."""

import copy
import json
import sys

import pytest
import torch
from helpers.faults import Above, At, Gate, ran_out
from helpers.weights import weights
from torch import nn

import brim
from brim.cli import main as cli
from brim.engine.step.transaction import OptimizerRanOut
from brim.engine.trainer import run_now
from brim.errors import CannotFit
from brim.model_blocks import chosen_blocks
from brim.workloads.recommender.bpr import BPR

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X, Y = torch.randn(37, 4), torch.randn(37, 1)


def net(gate=None, dropout=0.2, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), gate or Gate(), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def trainer(model, batch_size=8, **settings):
    settings = {"loss_fn": nn.MSELoss(), "optimizer": adamw, "device": "cpu", "threads": 1, "epochs": 3, **settings}
    return brim.Trainer(model, brim.Loader((X, Y), batch_size=batch_size), **settings)


def difference(a, b):
    return float((a - b).norm() / b.norm())


class Watch(brim.Callback):
    def __init__(self):
        self.steps, self.rates, self.losses = [], [], []

    def on_step_end(self, trainer, step, loss):
        self.steps.append(step)
        self.rates.append(trainer.optimizer.param_groups[0]["lr"])
        self.losses.append(float(loss))


def events(run, kind="memory"):
    return [e for e in map(json.loads, (run / "events.jsonl").read_text().splitlines()) if e["kind"] == kind]


def progress(run):
    newest = max((run / "checkpoints").glob("step-*"))
    return json.loads((newest / "progress.json").read_text())


@pytest.mark.matrix(2)
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_steps_schedule_losses_and_weights_are_those_of_whole_batches(where, limit):
    runs = []
    for gate in (Gate(), Gate(Above(limit), where)):
        watch, model = Watch(), net(gate, dropout=0.0)
        trainer(model, scheduler="cosine", clip_norm=1.0, callbacks=[watch]).fit()
        runs.append((watch, weights(model)))
    (plain, expected), (watch, trained) = runs
    assert watch.steps == plain.steps == list(range(1, 16))
    assert watch.rates == plain.rates
    assert watch.losses == pytest.approx(plain.losses, rel=1e-4)
    assert difference(trained, expected) <= 1e-5


@pytest.mark.matrix(1)
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_bits_are_those_of_the_slices_from_the_start(where):
    found, told = net(Gate(Above(4), where)), net()
    trainer(found).fit()
    trainer(told, micro_batch=4).fit()
    assert torch.equal(weights(found), weights(told))


def test_windows_of_several_batches_survive():
    found, whole = net(Gate(Above(3)), dropout=0.0), net(dropout=0.0)
    steps = [trainer(model, gradient_accumulation_steps=3).fit().steps for model in (found, whole)]
    assert steps == [6, 6]
    assert difference(weights(found), weights(whole)) <= 1e-5


def test_a_trial_of_threads_survives():
    model = net(Gate(Above(3)), dropout=0.0)
    assert trainer(model, threads="auto").fit().steps == 15


def test_what_happened_stands_in_the_run_folder(tmp_path):
    result = trainer(net(Gate(Above(4))), run_dir=tmp_path / "run").fit()
    (event,) = events(result.run)
    assert (event["micro_batch"], event["stage"]) == (4, "forward pass")
    assert "out of memory in the forward pass, in 1 at faults.py" in str(event)
    assert "going on with micro-batches of 4 (the batch stays 8)" in (result.run / "log.txt").read_text()
    assert progress(result.run)["micro_batch"] == 4


class Stop(brim.Callback):
    def __init__(self, at):
        self.at = at

    def on_step_end(self, trainer, step, loss):
        if step == self.at:
            trainer.stop("for a while")


def resumed_and_whole(folder, limit, batch_size, stop_at):
    """The weights of a run that was stopped and resumed, what the second half said, and the weights of one run."""
    whole = net(Gate(Above(limit)))
    trainer(whole, batch_size).fit()
    trainer(net(Gate(Above(limit))), batch_size, run_dir=folder, callbacks=[Stop(stop_at)]).fit()
    before = len(events(folder))
    model = net(Gate(Above(limit)), seed=5)
    trainer(model, batch_size, run_dir=folder).fit(resume="auto")
    return weights(model), events(folder)[before:], weights(whole)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("stop_at", [1, 7])
def test_a_resumed_run_starts_with_what_was_found_and_ends_with_the_same_bits(tmp_path, stop_at):
    resumed, told, whole = resumed_and_whole(tmp_path / "run", 4, 8, stop_at)
    assert not told
    assert torch.equal(resumed, whole)


def test_a_size_that_has_grown_since_the_failure_is_remembered_too(tmp_path):
    run = trainer(net(Gate(Above(13))), 37, epochs=12, run_dir=tmp_path / "run")
    run.fit()
    assert run_now(run).step.micro_batch == 13
    assert progress(tmp_path / "run")["micro_batch"] == 13


def test_an_explicit_micro_batch_shrinks_too_and_is_what_a_resumed_run_is_told(tmp_path):
    model = net(Gate(Above(2)), dropout=0.0)
    trainer(model, micro_batch=4, run_dir=tmp_path / "run").fit()
    whole = net(dropout=0.0)
    trainer(whole).fit()
    assert difference(weights(model), weights(whole)) <= 1e-5
    assert progress(tmp_path / "run")["micro_batch"] <= 2


# The end of the ladder


def test_what_cannot_fit_leaves_a_checkpoint_that_goes_on_where_there_is_more(tmp_path):
    gate, whole = Gate(Above(10**9)), net(dropout=0.0)
    trainer(whole).fit()

    class LessRoom(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            gate.fails.limit = 0 if step == 7 else gate.fails.limit

    with pytest.raises(CannotFit, match="one sample already"):
        trainer(net(gate, dropout=0.0), run_dir=tmp_path / "run", callbacks=[LessRoom()], checkpoint_every=100).fit()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-000000007"]
    model = net(dropout=0.0, seed=5)
    assert trainer(model, run_dir=tmp_path / "run").fit(resume="auto").steps == 15
    assert difference(weights(model), weights(whole)) <= 1e-5


def test_what_never_fits_leaves_the_beginning(tmp_path):
    with pytest.raises(CannotFit):
        trainer(net(Gate(Above(0))), run_dir=tmp_path / "run").fit()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-000000000"]
    assert "nothing else is left to try" in (tmp_path / "run" / "log.txt").read_text()


def test_an_optimizer_that_ran_out_leaves_the_last_good_checkpoint(tmp_path):
    class Greedy(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls == 3:
                raise ran_out()
            return super().step(closure)

    settings = {"optimizer": lambda parameters: Greedy(parameters, lr=0.1), "checkpoint_every": 1}
    with pytest.raises(OptimizerRanOut, match=r"optimizer's step.*last checkpoint") as error:
        trainer(net(), run_dir=tmp_path / "run", **settings).fit()
    assert error.value.exit_code == 3
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert saved == ["step-000000001", "step-000000002"]


def test_sliceable_false_and_losses_across_the_batch_are_not_sliced(tmp_path):
    with pytest.raises(CannotFit, match="must not be split"):
        trainer(net(Gate(Above(4))), sliceable=False).fit()

    def contrastive(model, batch):
        return nn.functional.cross_entropy(model(batch[0]) @ batch[1].T, torch.arange(len(batch[0])))

    with pytest.raises(CannotFit, match="looks across the batch"):
        trainer(net(Gate(Above(4))), loss_fn=contrastive).fit()


def blocks():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.2)) for _ in range(3)]
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(4, 1))


def recomputed(model):
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


class SeesBlocks(brim.Callback):
    """What is computed again at each step; ``fails`` is raised at the second one."""

    def __init__(self, fails=None):
        self.seen, self.fails = [], fails

    def on_step_end(self, trainer, step, loss):
        self.seen.append(recomputed(trainer.model))
        if step == 2 and self.fails is not None:
            raise self.fails


@pytest.mark.matrix(2)
@pytest.mark.parametrize("choice", [True, 1, 0.5, ["0.2", "1"]], ids=repr)
def test_checkpointing_from_the_start_is_the_same_training_and_ends_with_it(choice):
    plain, checkpointed, sees = blocks(), blocks(), SeesBlocks()
    keys = list(checkpointed.state_dict())
    trainer(plain).fit()
    again = trainer(checkpointed, checkpointing=choice, callbacks=[sees])
    again.fit()
    assert sees.seen == [list(chosen_blocks(plain, choice))] * 15
    assert torch.equal(weights(plain), weights(checkpointed))
    assert recomputed(checkpointed) == [] and list(checkpointed.state_dict()) == keys
    assert again.evaluate((X, Y)) == trainer(plain).evaluate((X, Y))
    assert torch.equal(again.predict(X), trainer(plain).predict(X))
    again.fit()  # which applies it again
    assert sees.seen == [list(chosen_blocks(plain, choice))] * 30 and recomputed(checkpointed) == []


@pytest.mark.parametrize("fails", [ValueError("mine"), KeyboardInterrupt(), BaseException("another")], ids=repr)
def test_a_model_computes_as_before_however_fit_ends(fails):
    model, sees = blocks(), SeesBlocks(fails)
    with pytest.raises(BaseException):  # noqa: B017  (what a callback raises comes out in several forms)
        trainer(model, checkpointing=True, callbacks=[sees]).fit()
    assert sees.seen[0] and recomputed(model) == []


def test_a_forward_of_the_users_own_is_there_again_and_a_loop_after_fit_computes_once():
    model, calls = blocks(), []
    first = model[0][0]
    first.forward = own = lambda x: calls.append(len(x)) or type(first).forward(first, x)
    trainer(model, checkpointing=True).fit()
    assert first.forward is own
    calls.clear()
    model(X).sum().backward()
    assert calls == [len(X)]
    assert copy.deepcopy(blocks()).load_state_dict(model.state_dict())


def test_what_a_step_of_ones_own_recomputes_is_left_so_by_fit():
    model = blocks()
    step = brim.Step(model, adamw(model.parameters()), nn.MSELoss(), checkpointing=["0.0"])
    trainer(model, checkpointing=False).fit()
    assert recomputed(model) == ["0.0"]
    step((X, Y))
    brim.Step(model, adamw(model.parameters()), nn.MSELoss(), checkpointing=False)
    assert recomputed(model) == []


def test_blocks_that_are_recomputed_for_lack_of_memory_are_not_after_fit():
    class Hungry(nn.Module):
        """Runs out of memory where its block keeps activations, and may not be split."""

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)])
            self.last = nn.Linear(4, 1)

        def forward(self, x):
            if self.training and torch.is_grad_enabled() and not recomputed(self):
                raise ran_out()
            for layer in self.layers:
                x = layer(x)
            return self.last(x)

    model, sees = Hungry(), SeesBlocks()
    trainer(model, sliceable=False, callbacks=[sees]).fit()
    assert sees.seen == [["layers.0", "layers.1"]] * 15 and recomputed(model) == []


@pytest.mark.parametrize("error", [ran_out(), MemoryError()], ids=repr)
def test_brim_train_ends_with_3_and_one_sentence_where_nothing_fits(error, monkeypatch, capsys, tmp_path):
    def failing(self, batch):
        raise error

    monkeypatch.setattr(BPR, "calculate_loss", failing)
    sizes = ["data.n_users=60", "data.n_items=40", "model.name=bpr", "trainer.device=cpu", "trainer.threads=1"]
    monkeypatch.setattr(sys, "argv", ["brim", "train", *sizes, "trainer.epochs=1", "trainer.run_dir=run"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("brim: out of memory in the forward pass")
    assert (tmp_path / "run" / "checkpoints" / "step-000000000").is_dir()


# Evaluation


@pytest.mark.matrix(1)
@pytest.mark.parametrize("limit", [1, 3])
def test_running_out_in_evaluation_leaves_training_alone(limit, tmp_path):
    runs = []
    for gate in (Gate(Above(10**9)), Gate(Above(limit), training=False)):
        model, data = net(gate), brim.Loader((X, Y), batch_size=16)
        result = trainer(model, eval_data=data, test_data=data, run_dir=tmp_path / str(gate.fails.limit)).fit()
        runs.append((weights(model), result.metrics["loss"], progress(result.run)["micro_batch"]))
    (expected, loss, _), (trained, sliced_loss, micro_batch) = runs
    assert micro_batch is None
    assert torch.equal(trained, expected)
    assert sliced_loss == pytest.approx(loss, rel=1e-6)


def test_predictions_survive():
    expected, found = trainer(net()).predict((X, Y)), trainer(net(Gate(Above(5), training=False))).predict((X, Y))
    assert torch.allclose(found, expected, rtol=1e-6)


def test_a_sample_that_is_too_large_to_evaluate_leaves_a_checkpoint(tmp_path):
    with pytest.raises(CannotFit, match="single sample"):
        trainer(net(Gate(Above(0), training=False)), eval_data=(X, Y), run_dir=tmp_path / "run").fit()
    assert (tmp_path / "run" / "checkpoints" / "step-000000005").is_dir()


def test_an_evaluator_that_runs_out_leaves_a_checkpoint(tmp_path):
    class Own:
        monitor, higher_is_better = "score", True

        def evaluate(self, model):
            raise ran_out()

    with pytest.raises(CannotFit):
        trainer(net(), eval_data=Own(), run_dir=tmp_path / "run").fit()
    assert (tmp_path / "run" / "checkpoints" / "step-000000005").is_dir()


class Fading(nn.Module):
    """A factor that every forward pass shrinks, whatever the data is; ``made``: by whom it is made."""

    def __init__(self, gate, made):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.gate = nn.Linear(4, 1), gate
        if made == "filled later":
            self.register_buffer("factor", None)

    def forward(self, x):
        if getattr(self, "factor", None) is None:
            self.register_buffer("factor", torch.ones(1))
        self.factor = self.factor * 0.95
        return self.gate(self.layer(x)) * self.factor


def test_a_buffer_that_the_first_try_fills_moves_once_a_step():
    found, whole = Fading(Gate(Above(3), "backward"), "filled later"), Fading(Gate(), "filled later")
    trainer(found).fit(), trainer(whole).fit()
    assert difference(weights(found), weights(whole)) <= 1e-5


def test_of_a_buffer_that_the_failed_try_has_registered_a_warning_is_given(tmp_path):
    trainer(Fading(Gate(At(1), "backward"), "registered later"), run_dir=tmp_path / "run", max_steps=2).fit()
    assert "Fading.factor did not exist before a try that ran out of memory" in str(events(tmp_path / "run"))
