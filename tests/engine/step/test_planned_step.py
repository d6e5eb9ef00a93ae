from types import SimpleNamespace

import pytest
import torch
from torch import nn

from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step import planned_step
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.planned_step import PlannedStep, usable_memory
from brim.errors import CannotFit, ConfigError
from brim.hardware.inventory import Gpu
from brim.memory.planning.plan import NothingFits

CPU = torch.device("cpu")
GIB = 1 << 30


@pytest.fixture(autouse=True)
def rules_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)


class Recorded(EagerStep):
    """A step that remembers which micro-batch it was called with."""

    def gradients(self, window):
        self.called_with = [*getattr(self, "called_with", []), self.micro_batch]
        return super().gradients(window)


def planned(model=None, sliceable=None, optimizer=None, clip_norm=None):
    torch.manual_seed(0)
    model = model or nn.Linear(4, 1)
    told = []
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    step = Recorded(loss_of(model, nn.MSELoss()), optimizer, Precision("32", CPU), None, clip_norm)
    made = PlannedStep(
        GuardedStep(step, model), model, nn.MSELoss(), sliceable, lambda plan, trouble: told.append((plan, trouble))
    )
    return made, step, told


def batch(n=8, width=4):
    return torch.ones(n, width), torch.ones(n, 1)


def decided(monkeypatch, answer):
    """Let every plan be ``answer``, or fail with it; gives the batches that were asked about."""
    asked = []

    def plan_of(_, example, batches, sliceable):
        asked.append(example)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(planned_step, "plan_of", plan_of)
    return asked


# The step


def test_slices_are_set_before_the_first_step_and_only_once(monkeypatch):
    plan = SimpleNamespace(slices=2, micro_batch=4)
    asked = decided(monkeypatch, plan)
    made, step, told = planned()
    for _ in range(3):
        made([batch()])
    assert step.called_with == [4, 4, 4]
    assert len(asked) == 1
    assert told == [(plan, "")]


def test_a_batch_that_fits_is_not_sliced(monkeypatch):
    plan = SimpleNamespace(slices=1, micro_batch=8)
    decided(monkeypatch, plan)
    made, step, told = planned()
    made([batch()])
    assert step.called_with == [None]
    assert told == [(plan, "")]


def test_a_step_in_slices_is_the_same_step(monkeypatch):
    def train(plan):
        decided(monkeypatch, plan)
        made, step, _ = planned()
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            made([(torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator))])
        return step.parameters[0].detach()

    whole, sliced = (train(SimpleNamespace(slices=s, micro_batch=8 // s)) for s in (1, 2))
    assert torch.allclose(whole, sliced, rtol=1e-5)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (NothingFits("a batch of 8 does not fit", None, []), "a batch of 8 does not fit"),
        (CannotFit("no"), "memory forecast failed: no; continuing without it"),
        (ConfigError("odd"), "memory forecast failed: odd; continuing without it"),
        (ZeroDivisionError("by zero"), "memory forecast failed: ZeroDivisionError: by zero; continuing without it"),
        (RuntimeError("x" * 999), f"memory forecast failed: RuntimeError: {'x' * 200}; continuing without it"),
    ],
    ids=["nothing fits", "cannot fit", "brim", "bug", "long"],
)
def test_trouble_is_told_once_and_the_step_runs(monkeypatch, error, sentence):
    decided(monkeypatch, error)
    made, step, told = planned()
    losses = [made([batch()]).loss.item() for _ in range(2)]
    assert losses[1] < losses[0]
    assert step.called_with == [None, None]
    assert told == [(None, sentence)]


def test_ctrl_c_during_the_forecast_is_ctrl_c(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(planned_step, "plan_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        planned()[0]([batch()])


# The plan itself, for a card that is not here


@pytest.fixture
def on_a_card(monkeypatch):
    """As if the step ran on an H200 of which so many bytes are free."""

    def card(free):
        gpu = Gpu(0, "NVIDIA H200", 150_109_880_320)
        monkeypatch.setattr(planned_step, "inventory", lambda: SimpleNamespace(gpus=(gpu,)))
        monkeypatch.setattr(planned_step, "usable_memory", lambda device: free)

    return card


def wide():
    return nn.Sequential(nn.Linear(4, 1024), nn.ReLU(), nn.Linear(1024, 1))


def test_a_first_batch_that_fits_is_planned_whole(on_a_card):
    on_a_card(100 * GIB)
    made, step, told = planned()
    made([batch()])
    ((plan, trouble),) = told
    assert (plan.slices, plan.batch_size, plan.limit, trouble) == (1, 8, 100 * GIB, "")
    assert plan.forecast.card.name == "NVIDIA H200"
    assert step.micro_batch is None


def test_a_first_batch_that_does_not_fit_is_sliced(on_a_card):
    on_a_card(3 * GIB // 8)
    made, step, told = planned(wide())
    made([batch(1 << 16)])
    ((plan, trouble),) = told
    assert trouble == ""
    assert plan.slices > 1
    assert step.called_with == [plan.micro_batch]
    assert plan.micro_batch == -(-(1 << 16) // plan.slices)


def test_all_batches_of_a_step_count(on_a_card):
    def allocated(batches):
        on_a_card(100 * GIB)
        made, _, told = planned(wide())
        made.decide([batch(1 << 16)] * batches)
        return told[0][0].forecast.allocated

    assert allocated(3) >= allocated(1) + 2 * (1 << 16) * 5 * 4


def test_nothing_is_left_behind_in_the_model(on_a_card):
    on_a_card(100 * GIB)
    model = wide()
    optimizer = torch.optim.AdamW(model.parameters())
    made, _, _ = planned(model, optimizer=optimizer)
    before = [parameter.clone() for parameter in model.parameters()]
    random = torch.random.get_rng_state()
    made.decide([batch()])
    assert torch.equal(torch.random.get_rng_state(), random)
    assert all(torch.equal(new, old) for new, old in zip(model.parameters(), before, strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not optimizer.state
    assert not any(module._forward_hooks for module in model.modules())


def test_a_model_with_batch_norm_is_told_about_and_left_whole(on_a_card):
    class Image(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16))

        def forward(self, x):
            return self.layers(x.view(-1, 1, 8, 8)).mean((1, 2, 3)).unsqueeze(1)

    on_a_card(GIB // 8)
    made, step, told = planned(Image())
    made.decide([batch(1 << 15, 64)])
    ((plan, trouble),) = told
    assert plan is None
    assert "BatchNorm" in trouble
    assert step.micro_batch is None


class Counting(nn.Sequential):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


@pytest.fixture
def keeping(on_a_card, tmp_path):
    """A planned step whose loss keeps what it saw in every way; and what it kept."""
    on_a_card(3 * GIB // 8)
    model = Counting(nn.Linear(4, 1024), nn.ReLU(), nn.Linear(1024, 1))
    kept = SimpleNamespace(model=model, history=[], calls={"loss": 0}, drawn=torch.Generator().manual_seed(0))

    def loss(model, batch):
        kept.calls["loss"] += 1
        noise = torch.rand((), generator=kept.drawn)
        kept.history.append(loss_of(model, nn.MSELoss())(batch) + 0 * noise)
        print("a step")
        return kept.history[-1]

    step = EagerStep(loss_of(model, loss), torch.optim.SGD(model.parameters(), lr=0.1), Precision("32", CPU))
    kept.told = []
    kept.step = PlannedStep(GuardedStep(step, model), model, loss, None, lambda plan, why: kept.told.append(why))
    return kept


@pytest.mark.parametrize("estimate", [False, True])
def test_calls_of_the_loss_by_a_forecast_leave_no_trace(keeping, capsys, estimate):
    state = keeping.drawn.get_state()
    if estimate:
        keeping.step.guard.estimate(batch(1 << 14))
    else:
        keeping.step.decide([batch(1 << 14)])
        assert keeping.told == [""]
    assert (keeping.history, keeping.calls, keeping.model.calls) == ([], {"loss": 0}, 0)
    assert torch.equal(keeping.drawn.get_state(), state)
    assert capsys.readouterr() == ("", "")


def test_a_loss_that_writes_files_is_not_forecast_and_that_is_said(on_a_card, tmp_path):
    on_a_card(100 * GIB)
    model, told, path = nn.Linear(4, 1), [], tmp_path / "log.txt"

    def loss(model, batch):
        with path.open("a") as file:
            file.write("a step")
        return model(batch[0]).mean()

    step = EagerStep(loss_of(model, loss), torch.optim.SGD(model.parameters(), lr=0.1), Precision("32", CPU))
    PlannedStep(GuardedStep(step, model), model, loss, None, lambda plan, why: told.append(why))([batch()])
    assert told == ["memory forecast left out: the loss writes files, so it is not called on trial"]
    assert path.read_text() == "a step"


def test_a_card_without_room_is_told_about_with_what_helps(on_a_card):
    on_a_card(1 << 20)
    made, step, told = planned(wide())
    made([batch()])
    ((plan, trouble),) = told
    assert plan is None
    assert trouble.startswith("not even one sample fits")
    assert "more of this card, from other programs or a limit on this one: " in trouble
    assert step.called_with == [None]


def test_clipping_and_the_optimizer_count(on_a_card):
    def parts(optimizer, clip_norm=None):
        on_a_card(100 * GIB)
        model = nn.Linear(4, 1 << 18)
        made, _, told = planned(model, optimizer=optimizer(model.parameters()), clip_norm=clip_norm)
        made.decide([(torch.ones(2, 4), torch.ones(2, 1 << 18))])
        return told[0][0].forecast.parts

    weights = 5 * (1 << 18) * 4
    assert parts(lambda p: torch.optim.SGD(p, lr=0.1))["optimizer"] == 0
    assert parts(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))["optimizer"] == pytest.approx(weights, rel=0.01)
    assert parts(torch.optim.AdamW, 1.0)["optimizer"] == pytest.approx(2 * weights, rel=0.01)


# What may be used


@pytest.mark.parametrize(
    ("free", "reserved", "share", "expected"), [(60, 10, 1.0, 70), (60, 10, 0.5, 50), (20, 5, 0.5, 25)]
)
def test_usable_is_what_is_free_or_reserved_within_the_share_of_the_process(
    monkeypatch, free, reserved, share, expected
):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * GIB, 100 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved * GIB)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: share)
    assert usable_memory(torch.device("cuda", 0)) == expected * GIB


def test_the_forecast_of_a_run_counts_its_average():
    made, _, _ = planned()
    assert planned_step.job_of(made, batch()).ema is None
    made.ema = 0.999
    assert planned_step.job_of(made, batch()).ema == 0.999


def test_weights_that_came_in_bf16_are_forecast_as_they_are_trained():
    assert planned_step.job_of(planned()[0], batch()).precision == "32"
    assert planned_step.job_of(planned(nn.Linear(4, 1).bfloat16())[0], batch()).precision == "bf16-true"
