"""What is refused without trying, and how a failure is told."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from brim.engine.captured.report import Refusal
from brim.engine.captured.trial import SYNC, check_step, is_compiled, reason_of
from brim.engine.loss import loss_of
from brim.engine.precision import Precision
from brim.engine.step import EagerStep
from brim.engine.trial_call import WritesFiles


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
        (WritesFiles("open log.txt"), "the step writes files"),
        (ValueError("first line\nsecond line"), "capturing failed: ValueError: first line"),
        (KeyError(), "capturing failed: KeyError: "),
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
    assert not is_compiled(eager_of(plain), plain)
    assert is_compiled(eager_of(compiled), compiled)
    step = eager_of(plain)
    step.compute.run = torch.compile(step.compute.plain, backend="eager")  # as the trainer does it
    assert is_compiled(step, plain)
    step.compute = torch.compile(step.compute.plain, backend="eager")
    assert is_compiled(step, plain)
    assert is_compiled(eager_of(plain), torch.compile(plain, backend="eager"))
