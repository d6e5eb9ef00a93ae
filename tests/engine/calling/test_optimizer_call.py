"""The step of an optimizer without torch's wrapper, wherever nobody could tell; and with it everywhere else."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from brim.engine.calling import optimizer_call
from brim.engine.calling.optimizer_call import step_optimizer


def make_optimizer(kind: Any = torch.optim.Adam) -> torch.optim.Optimizer:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 3))
    weight.grad = torch.randn(4, 3)
    return kind([weight], lr=0.1)


def weights(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    return optimizer.param_groups[0]["params"][0].detach()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_the_same_bits_as_the_step_itself(kind: Any) -> None:
    plain, stepped = make_optimizer(kind), make_optimizer(kind)
    for _ in range(3):
        plain.step()
        step_optimizer(stepped)
    assert torch.equal(weights(plain), weights(stepped))


def names_recorded(monkeypatch: pytest.MonkeyPatch, call: Callable[[], None]) -> int:
    """How often torch's wrapper names a step for a profiler."""
    named: list[str] = []
    original = torch.autograd.profiler.record_function

    def record(name: str) -> Any:
        named.append(name)
        return original(name)

    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd.profiler, "record_function", record)
        call()
    return len(named)


def test_torchs_wrapper_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = make_optimizer()
    assert names_recorded(monkeypatch, lambda: step_optimizer(optimizer)) == 0
    assert names_recorded(monkeypatch, optimizer.step) == 1


def test_a_profiler_sees_the_step_by_its_name() -> None:
    optimizer = make_optimizer()
    with torch.autograd.profiler.profile() as profile:
        step_optimizer(optimizer)
    assert "Optimizer.step#Adam.step" in {event.key for event in profile.key_averages()}


def test_hooks_are_called() -> None:
    optimizer, called = make_optimizer(), []
    handles = [
        optimizer.register_step_pre_hook(lambda *_: called.append("before")),
        optimizer.register_step_post_hook(lambda *_: called.append("after")),
    ]
    step_optimizer(optimizer)
    assert called == ["before", "after"]
    for handle in handles:
        handle.remove()
    of_all = register_optimizer_step_post_hook(lambda *_: called.append("all"))
    try:
        step_optimizer(optimizer)
    finally:
        of_all.remove()
    step_optimizer(optimizer)
    assert called == ["before", "after", "all"]


def test_a_schedule_sees_that_the_optimizer_has_stepped() -> None:
    optimizer = make_optimizer()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    step_optimizer(optimizer)
    assert optimizer._opt_called
    schedule.step()  # would warn of a schedule that is ahead of its optimizer, which fails a test


def test_steps_of_users_are_called_as_they_are() -> None:
    called: list[str] = []

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            called.append("own")
            return super().step(closure)

    own, plain = make_optimizer(Own), make_optimizer(torch.optim.SGD)
    step_optimizer(own)
    plain.step()
    assert called == ["own"] and torch.equal(weights(own), weights(plain))

    class Patched(torch.optim.SGD):
        pass

    optimizer = make_optimizer(Patched)
    torchs = Patched.step

    @functools.wraps(torchs)  # which looks like torch's wrapper in all but its code
    def patched(self: Any, *arguments: Any) -> Any:
        called.append("patched")
        return torchs(self, *arguments)

    Patched.step = patched
    step_optimizer(optimizer)
    assert called == ["own", "patched"]


def test_a_wrapper_that_does_more_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_call, "KNOWN_NAMES", frozenset({"chain"}))
    optimizer_call.known_wrapper.cache_clear()
    try:
        optimizer = make_optimizer()
        assert names_recorded(monkeypatch, lambda: step_optimizer(optimizer)) == 1
    finally:
        optimizer_call.known_wrapper.cache_clear()


def test_a_librarys_wrapper_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def counting(note: Callable[[str], None]) -> Any:
        def profile_hook_step(func: Any) -> Any:
            @functools.wraps(func)
            def wrapper(*arguments: Any) -> Any:
                note("library")
                return func(*arguments)

            return wrapper

        return staticmethod(profile_hook_step)

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", counting(called.append))
    optimizer_call.known_wrapper.cache_clear()
    try:
        step_optimizer(make_optimizer(Own))
    finally:
        optimizer_call.known_wrapper.cache_clear()
    assert "library" in called
