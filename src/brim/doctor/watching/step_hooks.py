"""Optimizer steps and backward passes: where one step ends and the next begins."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from brim.doctor.observation import OptimizerSeen
from brim.doctor.watching.feed.loader_hooks import LoaderHooks

WITHOUT_OPTIMIZER = 64  # backward passes after which no optimizer is expected any more
NEW_LEAD = 8  # steps of another optimizer after which it is the one that counts
MOST_LOSSES = 2000


class WatchedOptimizer:
    """One optimizer of the script's, and what it cost."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.seconds = self.zero_grad = 0.0
        self.steps = self.steps_since_lead = 0
        self.zeroes = False


class StepHooks:
    """Calls ``on_step`` at the end of every step of the script's first optimizer.

    A second one (of a discriminator, say) steps within these steps. It becomes the one that counts where the first has
    stopped. A script that updates its weights by itself has steps too: those of its backward passes.

    Args:
        loaders: Told of backward passes.
        on_step: Called at the end of a step.
        on_backward: Called at the end of a backward pass, where that was called.
    """

    def __init__(
        self, loaders: LoaderHooks, on_step: Callable[[], None], on_backward: Callable[[], None] = lambda: None
    ) -> None:
        self.loaders, self.on_step, self.on_backward = loaders, on_step, on_backward
        self.optimizers: dict[int, WatchedOptimizer] = {}
        self.lead: WatchedOptimizer | None = None
        self.losses: list[torch.Tensor] = []
        self.backwards = 0
        self.device = "cpu"  # of the last loss
        self.finds_anomalies = False  # in backward passes of the window
        self._began = self._backward_ended = 0.0

    def install(self) -> None:
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)
        self._watch_backward()
        self._watch_zero_grad()

    def begin_window(self) -> None:
        """From here on, seconds are those of the window that is reported."""
        for watched in self.optimizers.values():
            watched.seconds, watched.zero_grad, watched.steps = 0.0, 0.0, 0
        self.finds_anomalies = False

    @property
    def stepping(self) -> list[Optimizer]:
        """Those that have made steps in the window."""
        return [watched.optimizer for watched in self.optimizers.values() if watched.steps]

    def seen(self) -> tuple[OptimizerSeen, ...]:
        # A second optimizer may step more or less often than the one whose steps are counted.
        steps = max(1, 0 if self.lead is None else self.lead.steps)
        return tuple(_seen(watched, steps) for watched in self.optimizers.values() if watched.steps)

    def _watched(self, optimizer: Optimizer) -> WatchedOptimizer:
        return self.optimizers.setdefault(id(optimizer), WatchedOptimizer(optimizer))

    def _before(self, *_: Any) -> None:
        self._began = time.perf_counter()

    def _after(self, optimizer: Optimizer, *_: Any) -> None:
        if _is_pretended(optimizer.param_groups[0]["params"]):
            return
        watched = self._watched(optimizer)
        # A closure makes the backward pass within the step, which is not the optimizer's own time.
        watched.seconds += time.perf_counter() - max(self._began, self._backward_ended)
        watched.steps += 1
        watched.steps_since_lead += 1
        if self.lead is None or watched.steps_since_lead >= NEW_LEAD:
            self.lead = watched
        if watched is self.lead:
            for other in self.optimizers.values():
                other.steps_since_lead = 0
            self.on_step()

    def _watch_backward(self) -> None:
        hooks, backward = self, torch.autograd.backward

        def watched_backward(tensors: Any, *arguments: Any, **options: Any) -> None:
            backward(tensors, *arguments, **options)
            if _is_pretended([tensors] if isinstance(tensors, torch.Tensor) else tensors):
                return
            hooks._backward_ended = time.perf_counter()
            hooks.backwards += 1
            hooks.finds_anomalies |= torch.is_anomaly_enabled()
            hooks.loaders.on_backward()
            hooks.on_backward()
            loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
            if isinstance(loss, torch.Tensor):
                hooks.device = loss.device.type
                if loss.numel() == 1 and len(hooks.losses) < MOST_LOSSES:
                    hooks.losses.append(loss.detach().clone())  # on its device: reading it would wait
            if hooks.lead is None and hooks.backwards > WITHOUT_OPTIMIZER:
                hooks.on_step()

        torch.autograd.backward = watched_backward

    def _watch_zero_grad(self) -> None:
        hooks, zero_grad = self, Optimizer.zero_grad

        def watched_zero_grad(self: Optimizer, set_to_none: bool = True) -> None:
            start = time.perf_counter()
            zero_grad(self, set_to_none)
            watched = hooks._watched(self)
            watched.zero_grad += time.perf_counter() - start
            watched.zeroes = not set_to_none

        Optimizer.zero_grad = watched_zero_grad  # type: ignore[method-assign]


def _is_pretended(tensors: Iterable[Any]) -> bool:
    """Whether a step is made without numbers, to forecast its memory say: no step of the training."""
    return any(isinstance(tensor, FakeTensor) for tensor in tensors)


def _seen(watched: WatchedOptimizer, steps: int) -> OptimizerSeen:
    groups = watched.optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]
    return OptimizerSeen(
        name=type(watched.optimizer).__name__,
        tensors=len(parameters),
        elements=sum(parameter.numel() for parameter in parameters),
        foreach=groups[0].get("foreach"),
        fused=groups[0].get("fused"),
        seconds=watched.seconds / steps,
        zero_grad_seconds=watched.zero_grad / steps,
        zeroes_gradients=watched.zeroes,
        in_float64=any(parameter.dtype == torch.float64 for parameter in parameters),
    )
