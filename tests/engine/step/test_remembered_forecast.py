"""A remembered forecast is the one that would be made anew, and whatever may have changed it is made anew."""

import json
import weakref

import pytest
import torch
from torch import nn

from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step import planned_step, remembered_forecast
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.planned_step import PlannedStep, plan_of
from brim.memory.forecast import make_setting
from brim.memory.planning.plan import Planner

GIB = 1 << 30


@pytest.fixture(autouse=True)
def card(tmp_path, monkeypatch):
    """As if the step ran on an H200; gives a function that says how much of it is free."""
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(planned_step, "setting_on", lambda device: make_setting("NVIDIA H200", "2.11", False))

    def free(size):
        monkeypatch.setattr(planned_step, "usable_memory", lambda device: size)

    free(100 * GIB)
    return free


@pytest.fixture
def traced(monkeypatch):
    """How often a plan was made of traces."""
    calls, plan = [], Planner.plan

    def counted(self, *args, **kwargs):
        calls.append(args)
        return plan(self, *args, **kwargs)

    monkeypatch.setattr(Planner, "plan", counted)
    return calls


def net(width=64, p=0.0, kind=nn.ReLU):
    return nn.Sequential(nn.Linear(4, width), kind(), nn.Dropout(p), nn.Linear(width, 1))


def images():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 1))


def made_of(model, loss_fn=None, optimizer=torch.optim.AdamW, clip_norm=None, remembers=True, ema=None, **settings):
    loss_fn = loss_fn or nn.MSELoss()
    chosen = optimizer(model.parameters(), **settings)
    step = EagerStep(loss_of(model, loss_fn), chosen, Precision("32", torch.device("cpu")), None, clip_norm)
    return PlannedStep(GuardedStep(step, model), model, loss_fn, None, lambda plan, trouble: None, ema, remembers)


def batch(n=8, width=4):
    return torch.ones(n, width), torch.ones(n, 1)


def files(tmp_path):
    return sorted((tmp_path / "cache" / "brim").glob("*"))


@pytest.mark.parametrize(
    ("model", "example"), [(net, batch()), (images, (torch.ones(4, 1, 8, 8), torch.ones(4, 1)))], ids=["mlp", "images"]
)
def test_a_second_run_takes_what_the_first_has_made_and_it_is_what_would_be_made_anew(traced, model, example, card):
    first = plan_of(made_of(model()), example, 1, None)
    card(80 * GIB)  # other programs have come
    again = plan_of(made_of(model()), example, 1, None)
    assert len(traced) == 1
    anew = plan_of(made_of(model(), remembers=False), example, 1, None)
    assert (again, len(traced)) == (anew, 2)
    assert again.forecast == first.forecast and again.as_json() == anew.as_json() and again.limit == 80 * GIB


def test_nothing_is_remembered_unless_it_is_asked_for(traced, tmp_path):
    for _ in range(2):
        plan_of(made_of(net(), remembers=False), batch(), 1, None)
    assert len(traced) == 2 and not files(tmp_path)


def by_more_samples(model, samples):
    return nn.functional.mse_loss(model(samples[0]).repeat(9, 1), samples[1].repeat(9, 1))


CHANGES = {
    "the model": lambda: (made_of(net(128)), batch(), 1),
    "an activation": lambda: (made_of(net(kind=nn.GELU)), batch(), 1),
    "dropout": lambda: (made_of(net(p=0.5)), batch(), 1),
    "a frozen layer": lambda: (made_of(frozen(net())), batch(), 1),
    "a mode": lambda: (made_of(net().eval()), batch(), 1),
    "the batch": lambda: (made_of(net()), batch(9), 1),
    "its type": lambda: (made_of(net()), (torch.ones(8, 4), torch.ones(8, 1, dtype=torch.float64)), 1),
    "the loss": lambda: (made_of(net(), by_more_samples), batch(), 1),
    "the optimizer": lambda: (made_of(net(), optimizer=torch.optim.SGD), batch(), 1),
    "its settings": lambda: (made_of(net(), amsgrad=True), batch(), 1),
    "clipping": lambda: (made_of(net(), clip_norm=1.0), batch(), 1),
    "an average": lambda: (made_of(net(), ema=0.99), batch(), 1),
    "accumulation": lambda: (made_of(net()), batch(), 2),
}


def frozen(model):
    model[0].requires_grad_(False)
    return model


@pytest.mark.matrix(6)
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_decides_the_memory_of_a_step_makes_it_another_forecast(traced, change):
    plan_of(made_of(net()), batch(), 1, None)
    plan_of(*CHANGES[change](), None)
    assert len(traced) == 2
    plan_of(*CHANGES[change](), None)  # and that one is remembered as well
    assert len(traced) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(torch, "__version__", "2.99"),
        lambda patch: patch.setattr("brim.__version__", "9.9"),
        lambda patch: patch.setattr(remembered_forecast, "installed_code", lambda: ["plan.py 1 1"]),
        lambda patch: patch.setattr(
            planned_step, "setting_on", lambda device: make_setting("NVIDIA A10G", "2.11", False)
        ),
        lambda patch: patch.setattr(
            planned_step, "setting_on", lambda device: make_setting("NVIDIA H200", "2.11", True)
        ),
    ],
    ids=["torch", "brim", "the rules", "the card", "the allocator"],
)
def test_versions_and_cards_have_forecasts_of_their_own(traced, monkeypatch, change):
    plan_of(made_of(net()), batch(), 1, None)
    change(monkeypatch)
    plan_of(made_of(net()), batch(), 1, None)
    assert len(traced) == 2


def test_weights_numbers_and_the_learning_rate_move_no_memory(traced):
    plan_of(made_of(net(), lr=0.1), batch(), 1, None)
    torch.manual_seed(5)
    plan_of(made_of(net(), lr=0.2), (torch.randn(8, 4), torch.randn(8, 1)), 1, None)
    assert len(traced) == 1


def test_whole_numbers_count_by_their_values_for_a_model_may_choose_by_them(traced):
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, inputs):
            return self.layer(inputs["x"][inputs["rows"]])

    def of(rows):
        inputs = {"x": torch.ones(8, 4), "rows": torch.tensor(rows)}
        return plan_of(made_of(Chosen(), lambda model, samples: model(samples).mean()), inputs, 1, None)

    of([True] * 8), of([True] + [False] * 7)
    assert len(traced) == 2


def test_a_batch_that_may_not_fit_now_is_planned_anew(traced, card):
    wide = nn.Sequential(nn.Linear(4, 1024), nn.ReLU(), nn.Linear(1024, 1))
    assert plan_of(made_of(wide), batch(1 << 16), 1, None).slices == 1
    card(3 * GIB // 8)
    assert plan_of(made_of(wide), batch(1 << 16), 1, None).slices > 1
    assert len(traced) == 2


def test_what_a_limit_has_shaped_is_not_remembered(traced, card, tmp_path):
    wide = nn.Sequential(nn.Linear(4, 1024), nn.ReLU(), nn.Linear(1024, 1))
    card(3 * GIB // 8)
    assert plan_of(made_of(wide), batch(1 << 16), 1, None).slices > 1
    assert not files(tmp_path)


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-20],
        lambda text: text.replace('"reserved": ', '"reserved": 1'),
        lambda text: "[]",
        lambda text: '{"key": 3}',
        lambda text: text.replace('"key": "', '"key": "0'),
        lambda text: "\x00" * 64,
    ],
)
def test_a_damaged_file_is_not_believed_and_written_anew(traced, tmp_path, damage):
    first = plan_of(made_of(net()), batch(), 1, None)
    (file,) = files(tmp_path)
    whole = file.read_text()
    file.write_text(damage(whole))
    assert plan_of(made_of(net()), batch(), 1, None) == first and len(traced) == 2
    assert file.read_text() == whole


def test_a_file_with_a_right_digest_that_no_forecast_left_is_not_believed(traced, tmp_path):
    first = plan_of(made_of(net()), batch(), 1, None)
    (file,) = files(tmp_path)
    for name, value in (("reserved", "much"), ("batch_size", 4), ("holders", [{"size": 1}]), ("device_band", [1])):
        kept = json.loads(file.read_text())
        kept["forecast"][name] = value
        kept["digest"] = remembered_forecast.digest_of(kept["forecast"])
        file.write_text(json.dumps(kept))
        assert plan_of(made_of(net()), batch(), 1, None) == first
    assert len(traced) == 5


def test_a_folder_that_cannot_be_written_ends_nothing(monkeypatch, tmp_path, traced):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert plan_of(made_of(net()), batch(), 1, None).slices == 1
    assert len(traced) == 2


def test_a_model_that_cannot_be_told_from_run_to_run_is_forecast_anew(traced, tmp_path):
    def odd():
        model = net()
        model.first = weakref.ref(model[0])
        return model

    for _ in range(2):
        assert plan_of(made_of(odd()), batch(), 1, None).slices == 1
    assert len(traced) == 2 and not files(tmp_path)


def test_only_the_newest_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(remembered_forecast, "MOST_KEPT", 2)
    for width in (8, 16, 32):
        plan_of(made_of(net(width)), batch(), 1, None)
    assert len(files(tmp_path)) == 2


def test_training_is_bit_equal_with_a_fresh_and_with_a_remembered_forecast():
    def trained(remembers):
        torch.manual_seed(1)
        made = made_of(net(p=0.5), optimizer=torch.optim.SGD, lr=0.1, remembers=remembers)
        losses = [made([(torch.randn(8, 4), torch.randn(8, 1))]).loss for _ in range(3)]
        return losses, [*made.model.parameters()], torch.random.get_rng_state()

    plain, first, second = trained(False), trained(True), trained(True)
    for other in (first, second):
        for left, right in zip(plain, other, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


class Tied(nn.Module):
    """Whether they are is said by nothing but the weights themselves."""

    def __init__(self, is_tied):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        if is_tied:
            self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.first(x)).sum(1, keepdim=True)


def test_tied_weights_are_not_taken_for_untied_ones(traced):
    plans = [plan_of(made_of(Tied(is_tied)), batch(), 1, None) for is_tied in (True, False, True)]
    assert len(traced) == 2
    assert plans[0] == plans[2]
