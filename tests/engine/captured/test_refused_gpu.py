"""What cannot be captured is refused with its reason, and trained eagerly as if nobody had tried."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.errors import ConfigError

pytestmark = pytest.mark.gpu
LR = 2.0**-10


def line_of(marker):
    """Where in this file the line with this remark at its end is, as a reason names it."""
    lines = Path(__file__).read_text().splitlines()
    return next(f"{Path(__file__).name}:{n}" for n, line in enumerate(lines, 1) if line.endswith(f"# {marker}"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 64), nn.Linear(64, 1)

    def forward(self, x):
        return self.outer(self.inner(x).tanh())


class ReadsANumber(Net):
    def forward(self, x):
        scale = x.abs().max().item()  # reads a number
        return super().forward(x / scale) * scale


class Decides(Net):
    def forward(self, x):
        if x.sum() > 0:  # decides
            return super().forward(x)
        return super().forward(-x)


class Masks(Net):
    def forward(self, x):
        found = super().forward(x)
        return found + found[x[:, 0] > 0].mean()  # masks


class LooksForOnes(Net):
    def forward(self, x):
        rows = torch.nonzero(x[:, 0] > 0).flatten()  # looks for ones
        found = super().forward(x)
        return found + found.index_select(0, rows).mean()


REFUSED = {
    "reads a number": ReadsANumber, "decides": Decides, "masks": Masks, "looks for ones": LooksForOnes,
}  # fmt: skip


@pytest.mark.parametrize(("marker", "model"), REFUSED.items(), ids=REFUSED)
def test_a_model_that_waits_for_the_device_is_refused_by_its_line(twins, marker, model):
    eager, tried = twins(model, twins.rows(), "auto")
    assert not tried.report.captured and tried.report.replays == 0
    assert line_of(marker) in tried.report.reason
    assert tried.report.eager == len(tried.losses) == len(eager.losses)
    assert tried.equals(eager)
    assert torch.equal(tried.random, eager.random)


@pytest.mark.parametrize(("marker", "model"), REFUSED.items(), ids=REFUSED)
def test_where_capturing_is_required_that_ends_the_run(twins, marker, model):
    with pytest.raises(ConfigError, match=line_of(marker)):
        twins.train(model, twins.rows(), "require")


def test_the_reason_is_one_line_of_the_journal(twins):
    tried = twins.train(ReadsANumber, twins.rows(), "auto")
    events = [json.loads(line) for line in (tried.folder / "events.jsonl").read_text().splitlines()]
    told = [event["line"] for event in events if event["kind"] == "capture"]
    assert len(told) == 1 and line_of("reads a number") in told[0]


def test_a_step_of_ones_own_loop_is_refused_in_the_same_way(twins):
    batches = [twins.rows(32)] * 30
    eager = twins.step_through(ReadsANumber, batches, "off")
    tried = twins.step_through(ReadsANumber, batches, "auto")
    assert line_of("reads a number") in tried.report.reason
    assert tried.equals(eager)
    with pytest.raises(ConfigError, match=line_of("reads a number")):
        twins.step_through(ReadsANumber, batches, "require")


def test_after_a_refusal_the_device_captures_other_models(twins):
    twins.train(ReadsANumber, twins.rows(), "auto")
    assert twins.train(Net, twins.rows(), "require").is_accounted_for


class CountsOnTheHost(torch.optim.Optimizer):
    """Divides its learning rate by a Python number that grows with every step."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.count = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"] / self.count)


class OnTheDeviceOnly(CountsOnTheHost):
    """The same with a number on the device; the learning rate is still the host's."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                count = self.state[parameter].setdefault("count", torch.zeros((), device=parameter.device))
                count.add_(1)
                parameter.sub_(parameter.grad * group["lr"] / count)


def test_an_optimizer_that_counts_on_the_host_is_refused_by_name(twins):
    eager, tried = twins(Net, twins.rows(), "auto", optimizer=CountsOnTheHost)
    assert not tried.report.captured
    assert "CountsOnTheHost" in tried.report.reason
    assert tried.equals(eager)
    assert tried.optimizer.count == len(tried.losses)
    with pytest.raises(ConfigError, match="CountsOnTheHost"):
        twins.train(Net, twins.rows(), "require", optimizer=CountsOnTheHost)


def test_an_optimizer_of_ones_own_is_captured_right_or_refused(twins):
    schedule = {"scheduler": {"name": "cosine", "warmup": 10}}
    eager, tried = twins(Net, twins.rows(), "auto", optimizer=OnTheDeviceOnly, **schedule)
    assert tried.differs_from(eager) <= 1e-5


@pytest.mark.parametrize("capture", ["auto", "require"])
def test_an_optimizer_that_evaluates_the_loss_itself_is_no_more_possible_than_without_capturing(twins, capture):
    with pytest.raises((ConfigError, TypeError)):
        twins.train(Net, twins.rows(), capture, optimizer=lambda p: torch.optim.LBFGS(p))


class Counting(Net):
    """Counts its calls in a Python number, which only a call can change."""

    weighs = 0.0

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + self.weighs * self.calls)


class CountingHeavily(Counting):
    weighs = 0.05


class Noting(Net):
    """Keeps what it saw in a list."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(len(x))
        return super().forward(x)


class DrawsOnTheHost(Net):
    """Its noise comes from the CPU's generator, as a Python number."""

    def forward(self, x):
        return super().forward(x) * (1 + float(torch.rand(())))


def test_a_model_that_counts_its_calls_is_refused_or_counted_right(twins):
    eager, tried = twins(Counting, twins.rows(), "auto")
    assert tried.differs_from(eager) <= 1e-5
    assert not tried.report.captured or tried.model.calls == eager.model.calls


def test_a_model_that_keeps_a_list_is_refused_or_kept_right(twins):
    eager, tried = twins(Noting, twins.rows(), "auto")
    assert tried.differs_from(eager) <= 1e-5
    assert not tried.report.captured or tried.model.seen == eager.model.seen


@pytest.mark.parametrize("model", [CountingHeavily, DrawsOnTheHost])
def test_a_number_of_the_host_that_enters_the_result_is_never_frozen(twins, model):
    tried = twins.train(model, twins.rows(), "auto")
    assert not tried.report.captured and tried.report.reason
    with pytest.raises(ConfigError):
        twins.train(model, twins.rows(), "require")


def test_a_model_that_draws_on_the_host_draws_the_numbers_of_the_eager_run(twins):
    eager, tried = twins(DrawsOnTheHost, twins.rows(), "auto")
    assert tried.equals(eager)


class Printing(Net):
    def forward(self, x):
        print("a batch of", len(x))
        return super().forward(x)


def test_a_model_that_prints_trains_the_same(twins, capsys):
    """What it prints in replayed steps is not said: docs/capture.md tells so."""
    eager, tried = twins(Printing, twins.rows(), "auto")
    assert tried.differs_from(eager) <= 1e-5
    assert "a batch of 32" in capsys.readouterr().out


def test_off_means_off(twins):
    plain = twins.train(Net, twins.rows(), "off")
    assert not plain.report.captured and plain.report.replays == plain.report.graphs == 0
    assert plain.report.eager == len(plain.losses)


def test_a_run_too_short_to_be_captured_is_trained_all_the_same(twins):
    eager, tried = twins(Net, twins.rows(32), "auto", epochs=1)
    assert tried.equals(eager) and len(tried.losses) == 1


def test_hooks_that_change_gradients_are_a_part_of_the_step(twins):
    def hooked():
        model = Net()
        model.inner.weight.register_hook(lambda gradient: gradient * 0.5)
        return model

    settings = {"optimizer": lambda p: torch.optim.SGD(p, lr=2.0**-5)}  # Adam would not see a factor
    plain = twins.train(Net, twins.rows(), "off", **settings)
    eager, tried = twins(hooked, twins.rows(), "auto", **settings)
    assert tried.differs_from(eager) <= 1e-5 < plain.differs_from(eager)


class Watching(brim.Callback):
    """Reads every loss and the weights, as people do while they look for a mistake."""

    def __init__(self):
        self.norms = []

    def on_step_end(self, trainer, step, loss):
        self.norms.append((float(loss), float(trainer.model.inner.weight.norm())))


def test_callbacks_see_the_loss_and_the_weights_of_their_step(twins):
    watched = []

    def watching():
        watched.append(Watching())
        return watched[-1:]

    _, captured = twins(
        Net, twins.rows(), callbacks=watching, optimizer=lambda p: torch.optim.Adam(p, lr=LR, fused=True)
    )
    assert captured.is_accounted_for
    assert watched[0].norms == watched[1].norms
    assert len({norm for _, norm in watched[1].norms}) > 0.9 * len(captured.losses)
