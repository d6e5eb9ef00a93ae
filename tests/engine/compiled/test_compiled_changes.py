"""What becomes of proven code when something changes in mid-run; compared with the same training without it."""

import pytest
import torch
from helpers.compiled_training import BY_BLOCKS, Net, assert_same, batches, decision, trained
from helpers.faults import Above, Gate
from torch import nn

import brim
from brim.engine.compiled import compiled_step


class At(brim.Callback):
    """Does something to the model after a step; ``calls`` counts what it has put there."""

    def __init__(self, change, step=10):
        self.change, self.step, self.calls = change, step, 0

    def on_step_end(self, trainer, step, loss):
        if step == self.step:
            self.change(self, trainer.model)

    def count(self, *_):
        self.calls += 1


def drop_less(at, model):
    model.blocks[1].drop.p = 0.05


def freeze(at, model):
    model.blocks[0].requires_grad_(False)


def hook(at, model):
    model.blocks[2].linear.register_forward_hook(at.count)


def hook_everywhere(at, model):
    at.handle = nn.modules.module.register_module_forward_hook(at.count)


def replace(at, model):
    model.blocks[3].forward = lambda x: x + 1


CHANGES = [drop_less, freeze, hook, replace]


@pytest.mark.parametrize("change", [pytest.param(one, marks=pytest.mark.slow) for one in CHANGES[1:]] + CHANGES[:1])
def test_what_is_changed_between_steps_counts_from_the_next_one_on(tmp_path, eager_to_try, change):
    at = At(change), At(change)
    eager, _ = trained(False, tmp_path / "eager", callbacks=[at[0]])
    compiled, _ = trained("auto", tmp_path / "compiled", callbacks=[at[1]])
    told = decision(tmp_path / "compiled")
    assert told["used"] if change is not hook else "has a hook (At.count)" in told["reason"]
    assert_same(eager, compiled)
    assert at[0].calls == at[1].calls


@pytest.mark.slow
def test_hooks_that_come_late_are_called_where_compiling_was_asked_for(tmp_path):
    at = At(hook), At(hook)
    trained(False, tmp_path / "eager", callbacks=[at[0]])
    trained(BY_BLOCKS, tmp_path / "compiled", callbacks=[at[1]])
    assert at[0].calls == at[1].calls == 6


def test_hooks_on_all_modules_are_called(tmp_path):
    at = At(hook_everywhere, 2), At(hook_everywhere, 2)
    for way, one in zip((False, BY_BLOCKS), at, strict=True):
        try:
            trained(way, tmp_path / str(way is False), batches((5,) * 4), callbacks=[one], epochs=1)
        finally:
            one.handle.remove()
    assert at[0].calls == at[1].calls > 0


@pytest.mark.slow
def test_shapes_that_begin_to_vary_are_proven_too(tmp_path, eager_to_try, capsys):
    ragged = batches((5,) * 9 + (6, 7, 8, 9, 5, 6, 7, 10, 11))
    eager, _ = trained(False, tmp_path / "eager", ragged, epochs=1)
    compiled, _ = trained("auto", tmp_path / "compiled", ragged, epochs=1)
    assert capsys.readouterr().err.count("steps are compiled") == 2
    assert_same(eager, compiled)


def test_what_changes_again_and_again_is_eager_in_the_end(tmp_path, eager_to_try, monkeypatch):
    monkeypatch.setattr(compiled_step, "MOST_TRIALS", 1)
    eager, _ = trained(False, tmp_path / "eager", callbacks=[At(drop_less)])
    found, _ = trained("auto", tmp_path / "run", callbacks=[At(drop_less)])
    reason = decision(tmp_path / "run")["reason"]
    assert reason.startswith("they would be compiled for the 2th time, because ")
    assert "p == 0.2 does not hold any more" in reason
    assert_same(eager, found)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(5, 1), 0

    def forward(self, words):
        self.calls += 1
        return self.linear(words / 100)


def test_a_model_that_counts_in_python_stays_eager(tmp_path, eager_to_try):
    model, _ = trained("auto", tmp_path / "run", make=Counting)
    assert decision(tmp_path / "run")["reason"].startswith("Counting.calls is changed in Python by every pass")
    assert model.calls == 16


class Teacher(nn.Module):
    """A student whose loss moves a teacher."""

    def __init__(self):
        super().__init__()
        self.student, self.norm = nn.Linear(5, 5), nn.BatchNorm1d(5)
        self.teacher = nn.Linear(5, 5).requires_grad_(False)

    def forward(self, words):
        x = self.norm(words.float())
        with torch.no_grad():
            for one, other in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                one.lerp_(other, 0.1)
        return (self.student(x) - self.teacher(x)).square().mean(1, keepdim=True)


def test_what_forward_passes_move_is_moved_once_for_every_step(tmp_path, eager_to_try):
    eager, _ = trained(False, tmp_path / "eager", make=Teacher)
    compiled, _ = trained("auto", tmp_path / "compiled", make=Teacher)
    assert decision(tmp_path / "compiled")["used"]
    assert_same(eager, compiled)


def test_losses_with_an_optimizer_of_their_own_are_not_tried(tmp_path, eager_to_try):
    other = nn.Parameter(torch.zeros(()))
    own = torch.optim.SGD([other], lr=0.1)

    def loss(model, batch):
        other.grad = torch.ones(())
        own.step()
        return (model(batch[0]) - batch[1]).square().mean() + 0 * other.detach()

    trained("auto", tmp_path / "run", loss_fn=loss, epochs=1)
    assert decision(tmp_path / "run")["reason"] == "it lets a SGD step"
    assert other.item() == pytest.approx(-0.1 * 8)


class Own(torch.optim.Optimizer):
    """Keeps its count as a number, as many people's optimizers do."""

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["step"] = state.get("step", 0) + 1
            parameter.add_(parameter.grad, alpha=-self.param_groups[0]["lr"] / state["step"])


def test_optimizers_are_not_stepped_on_trial(tmp_path, eager_to_try):
    eager, _ = trained(False, tmp_path / "eager", optimizer=Own)
    compiled, _ = trained("auto", tmp_path / "compiled", optimizer=Own)
    assert decision(tmp_path / "compiled")["used"]
    assert_same(eager, compiled)


class Gated(Net):
    def __init__(self):
        super().__init__()
        self.words = nn.Sequential(Gate(), self.words)


def fill_memory(at, model):
    model.words[0].fails = Above(3)


@pytest.mark.slow
def test_micro_batches_that_memory_asks_for_are_proven_anew(tmp_path, eager_to_try, capsys):
    filling = {"callbacks": [At(fill_memory)], "make": Gated, "epochs": 6}
    eager, _ = trained(False, tmp_path / "eager", **filling)
    compiled, _ = trained("auto", tmp_path / "compiled", **filling)
    assert capsys.readouterr().err.count("steps are compiled") == 2
    assert decision(tmp_path / "compiled")["used"]
    assert_same(eager, compiled)
