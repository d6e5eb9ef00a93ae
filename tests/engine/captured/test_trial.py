"""What is refused without trying, and how a failure is told."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from graph_on_cpu import on_cpu
from torch import nn

import brim
from brim.engine.captured import trial as trial_room
from brim.engine.captured.captured_step import WARM_UP, CapturedStep
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.inputs import BlockInputs
from brim.engine.captured.report import Refusal
from brim.engine.captured.trial import SYNC, check_passes, check_step, is_compiled, reason_of
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.sandbox.trial_call import WritesFiles
from brim.engine.step.eager_step import EagerStep


def eager_of(model, kind=torch.optim.SGD):
    optimizer = kind([p for p in model.parameters() if p.requires_grad] or model.parameters(), lr=0.1)
    return EagerStep(loss_of(model, nn.MSELoss()), optimizer, Precision("32", torch.device("cpu")))


def frozen():
    """A model whose optimizer has nothing to step, which may be anywhere."""
    return nn.Sequential(nn.Linear(2, 2)).requires_grad_(False)


def test_a_model_for_several_gpus_is_refused():
    model = nn.Sequential(nn.DataParallel(nn.Linear(2, 2)))
    with pytest.raises(Refusal, match="wrapped for several GPUs"):
        check_step(eager_of(model), model, [])


def test_a_sharded_model_is_refused():
    model = frozen()
    model[0].weight.device_mesh = SimpleNamespace()
    with pytest.raises(Refusal, match="sharded"):
        check_step(eager_of(model), model, [])


def test_two_passes_are_not_captured():
    model = nn.Linear(3, 2)
    loss_fn = brim.TwoPass(lambda model, batch: model(batch[0]), lambda rows: (rows @ rows.T).mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    eager = EagerStep(loss_of(model, loss_fn), optimizer, Precision("32", torch.device("cpu")), micro_batch=2)
    check_passes(eager, [(torch.ones(2, 3),)])
    with pytest.raises(Refusal, match="two passes"):
        check_passes(eager, [(torch.ones(4, 3),)])


def test_the_optimizer_hooks_and_batches_are_looked_at():
    model = frozen()
    check_step(eager_of(model), model, [(1, "plain")])
    with pytest.raises(Refusal, match="keeps numbers on the host"):
        check_step(eager_of(model, torch.optim.Adagrad), model, [])
    with pytest.raises(Refusal, match="not on the GPU"):
        check_step(eager_of(model), model, [torch.zeros(2)])
    model[0].register_forward_hook(lambda *_: None)
    with pytest.raises(Refusal, match="has a hook"):
        check_step(eager_of(model), model, [])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            "there is no memory for a captured",
        ),
        (RuntimeError(f"{SYNC}\nmore"), "the host has to wait for a number from the GPU"),
        (
            RuntimeError("CUDA error: operation not permitted when stream is capturing"),
            "the host has to wait for a number from the GPU",
        ),
        (
            RuntimeError("CUDA error: operation would make the legacy stream depend on a capturing blocking stream"),
            "a part of the step works on the default stream",
        ),
        (WritesFiles("open log.txt"), "the step writes files"),
        (ValueError("first line\nsecond line"), "capturing failed: ValueError: first line"),
        (KeyError(), "capturing failed: KeyError"),
    ],
)
def test_a_failure_is_told_in_one_line(error, said):
    reason = reason_of(error, nn.Linear(1, 1))
    assert reason.startswith(said) and "\n" not in reason


def test_a_long_message_is_cut():
    assert len(reason_of(ValueError("x" * 5000), nn.Linear(1, 1))) < 300


def reads_a_number():
    raise RuntimeError("CUDA error: operation not permitted when stream is capturing")  # the line


def broken_off():
    """As a capture ends whose body failed: with an error of its own."""
    try:
        reads_a_number()
    finally:
        raise RuntimeError("operation failed due to a previous error during capture")


def test_the_line_is_that_of_the_error_that_the_capture_broke_off_with():
    lines = Path(__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.endswith("# the line"))
    try:
        broken_off()
    except RuntimeError as error:
        reason = reason_of(error, nn.Linear(1, 1))
    assert reason.startswith("the host has to wait") and f"test_trial.py:{number}" in reason


def test_compiled_steps_are_told_from_others():
    plain, compiled = nn.Linear(1, 1), nn.Linear(1, 1)
    compiled.compile(backend="eager")
    assert not is_compiled(eager_of(plain).compute, plain)
    assert is_compiled(eager_of(compiled).compute, compiled)
    step = eager_of(plain)
    step.compute.run = torch.compile(step.compute.plain, backend="eager")  # as the trainer does it
    assert is_compiled(step.compute, plain)
    step.compute = torch.compile(step.compute.plain, backend="eager")
    assert is_compiled(step.compute, plain)
    assert is_compiled(eager_of(plain).compute, torch.compile(plain, backend="eager"))


COUNTS = {"steps": 0}


class Disturbing(nn.Module):
    """Keeps something of every call, in places that a step of before the trial did not show."""

    def __init__(self):
        super().__init__()
        self.inner, self.noise, self.norm = nn.Linear(3, 8), nn.Dropout(0.5), nn.BatchNorm1d(8)
        self.calls, self.seen, self.is_armed = 0, [], False

    def forward(self, x):
        print("a forward pass")
        if self.is_armed:
            self.calls += 1
            self.seen.append(len(x))
            COUNTS["steps"] += 1
        return self.norm(self.noise(self.inner(x))).sum(1, keepdim=True) * (1 + 0.1 * self.calls)


class Bench:
    """A captured step whose graphs compute on the CPU; its trials are real."""

    def __init__(self, graph_type=StepGraph, model=Disturbing, kind=torch.optim.AdamW, loss_fn=None, **settings):
        torch.manual_seed(0)
        self.model = model()
        self.told = []
        self.optimizer = kind(self.model.parameters(), lr=0.01)
        compute = loss_of(self.model, loss_fn or nn.MSELoss())
        self.eager = EagerStep(compute, self.optimizer, Precision("32", torch.device("cpu")), **settings)
        self.eager.reads_loss = False
        self.step = CapturedStep(
            self.eager, self.eager, self.model, loss_fn or nn.MSELoss(), required=False,
            tell=lambda line, **facts: self.told.append(line), looks_each_step=True, rates_move=True,
        )  # fmt: skip
        self.step.graph_type = on_cpu(graph_type)

    def run(self, steps, before=lambda number: None):
        torch.manual_seed(1)
        for number in range(steps):
            before(number)
            x = torch.randn(6, 3, generator=torch.Generator().manual_seed(number))
            self.step([(x, x.sum(1, keepdim=True))])
        return self


def numbers_of(bench):
    found = [*bench.model.state_dict().values(), torch.get_rng_state()]
    return [*found, *[value for state in bench.optimizer.state.values() for value in state.values()]]


def test_a_trial_that_succeeds_leaves_the_training_where_it_was(on_the_cpu, capsys):
    bench, plain = Bench().run(9), Bench()
    assert bench.step.report.captured and bench.step.report.replays == 9 - WARM_UP
    assert "gradients equal to the bit" in bench.told[0] and "with the learning rate changed" in bench.told[0]
    plain.step = plain.eager
    plain.run(9)
    assert all(
        torch.allclose(one, other, atol=1e-6) for one, other in zip(numbers_of(bench), numbers_of(plain), strict=True)
    )


def test_a_graph_of_rows_of_a_block_copies_the_block_in_once(on_the_cpu):
    x = torch.randn(96, 3, generator=torch.Generator().manual_seed(0))
    y = x.sum(1, keepdim=True)
    bench, plain = Bench(), Bench()
    bench.step.feed = SimpleNamespace(hands_out_blocks=True)
    for step in (bench.step, plain.eager):
        torch.manual_seed(1)
        for row in range(0, 96, 6):
            step([(x[row : row + 6], y[row : row + 6])])
    (graph,) = bench.step.graphs.values()
    assert isinstance(graph.inputs, BlockInputs) and bench.step.report.replays == 16 - WARM_UP
    assert all(
        torch.allclose(one, other, atol=1e-6) for one, other in zip(numbers_of(bench), numbers_of(plain), strict=True)
    )


@pytest.mark.parametrize("name", ["RepeatedMask", "FrozenRate", "StaleInput", "MissingGradient", "FrozenCount"])
def test_after_a_refusal_everything_is_as_in_a_loop_of_eager_steps(on_the_cpu, mutations, name):
    bench, plain = Bench(getattr(mutations, name)).run(9), Bench()
    assert not bench.step.report.captured and bench.step.report.reason
    plain.step = plain.eager
    plain.run(9)
    assert all(map(torch.equal, numbers_of(bench), numbers_of(plain)))


def test_what_gains_nothing_is_known_before_the_proof_which_takes_longest(on_the_cpu, monkeypatch):
    monkeypatch.setattr(trial_room, "LEAST_GAIN", 1e9)
    proofs = []
    monkeypatch.setattr(trial_room.StepProof, "run", lambda proof: proofs.append(proof))
    bench, plain = Bench().run(9), Bench()
    assert "gains nothing here" in bench.step.report.reason and not proofs
    plain.step = plain.eager
    plain.run(9)
    assert all(map(torch.equal, numbers_of(bench), numbers_of(plain)))


def test_what_the_model_keeps_in_python_is_put_back_after_a_trial(on_the_cpu, monkeypatch):
    """It begins to count after the steps that are watched, so that the trial itself finds it."""
    monkeypatch.setitem(COUNTS, "steps", 0)

    def arm(bench):
        def before(number):
            bench.model.is_armed = number >= WARM_UP

        return before

    bench, plain = Bench(), Bench()
    bench.run(9, arm(bench))
    counted = COUNTS["steps"], bench.model.calls, list(bench.model.seen)
    assert "changes with every step" in bench.step.report.reason
    assert counted == (9 - WARM_UP, 9 - WARM_UP, [6] * (9 - WARM_UP))
    plain.step = plain.eager
    plain.run(9, arm(plain))
    assert all(map(torch.equal, numbers_of(bench), numbers_of(plain)))


def test_a_closure_of_the_loss_is_put_back_after_a_trial(on_the_cpu):
    calls, is_armed = 0, False

    def loss_fn(model, batch):
        nonlocal calls
        calls += is_armed
        return (model(batch[0]) - batch[1]).square().mean() * (1 + calls)

    def before(number):
        nonlocal is_armed
        is_armed = number >= WARM_UP

    bench = Bench(loss_fn=loss_fn).run(9, before)
    assert "calls changes with every step" in bench.step.report.reason
    assert calls == 9 - WARM_UP


def test_nothing_of_a_trial_is_printed(on_the_cpu, capsys):
    bench = Bench().run(9)
    assert bench.step.report.captured
    # The stand-in for the graph calls the model at each replay; each of its trials would have printed dozens.
    assert capsys.readouterr().out.count("a forward pass") == 9


class Writes(Disturbing):
    def __init__(self):
        super().__init__()
        self.path = None

    def forward(self, x):
        with self.path.open("a") as file:
            file.write("a line\n")
        return super().forward(x)


def test_a_step_that_writes_files_is_refused_and_no_trial_writes_any(on_the_cpu, tmp_path):
    bench = Bench(model=Writes)
    bench.model.path = tmp_path / "log.txt"
    bench.run(9)
    assert bench.step.report.reason.startswith("the step writes files")
    assert (tmp_path / "log.txt").read_text().count("a line") == 9


class Follows(Disturbing):
    """A second encoder that follows the first one, without a gradient and by ``.data``."""

    def __init__(self):
        super().__init__()
        self.follower = nn.Linear(3, 8).requires_grad_(False)

    def forward(self, x):
        self.follower.weight.data.mul_(0.9).add_(self.inner.weight.data, alpha=0.1)
        return super().forward(x) + self.follower(x).sum(1, keepdim=True)


def test_an_encoder_that_follows_another_is_where_eager_steps_leave_it(on_the_cpu):
    bench, plain = Bench(model=Follows).run(9), Bench(model=Follows)
    assert bench.step.report.captured
    plain.step = plain.eager
    plain.run(9)
    assert torch.allclose(bench.model.follower.weight, plain.model.follower.weight, atol=1e-6)


def test_a_global_that_the_user_changes_is_captured_anew(on_the_cpu, monkeypatch):
    monkeypatch.setitem(SETTINGS, "scale", 1.0)

    def before(number):
        SETTINGS["scale"] = 1.0 if number < 6 else 2.0

    bench = Bench(loss_fn=by_settings).run(12, before)
    assert any("captured anew, because SETTINGS['scale'] changed" in line for line in bench.told)
    assert bench.step.report.captured and bench.step.report.replays > 5


SETTINGS = {"scale": 1.0}


def by_settings(model, batch):
    return (model(batch[0]) - batch[1]).square().mean() * SETTINGS["scale"]


def test_where_capturing_gains_nothing_it_is_refused(on_the_cpu, monkeypatch):
    monkeypatch.setattr(trial_room, "LEAST_GAIN", math.inf)
    assert "gains nothing" in Bench().run(6).step.report.reason
    monkeypatch.setattr(trial_room, "HOST_SHARE", math.inf)
    assert "the GPU is the limit" in Bench().run(6).step.report.reason
