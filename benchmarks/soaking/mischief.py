"""What goes wrong inside a training, at a counted moment: it can be met again, unlike a moment on the clock."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

import brim
from soaking.feeds import OnSample

Act = Callable[[], Any]
ActOnTrainer = Callable[[brim.Trainer], Any]
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir")


@dataclass(frozen=True)
class Mischief:
    """What is done before the training, at its n-th forward pass, file operation or optimizer step, and for samples."""

    before: Act = lambda: None
    at_forward: Mapping[int, Callable[[Tensor], Any]] = field(default_factory=dict)
    at_file: Mapping[int, Act] = field(default_factory=dict)
    at_step: Mapping[int, ActOnTrainer] = field(default_factory=dict)
    on_sample: OnSample | None = None


class Counters:
    """Counts the moments of a training, and does at each what is to be done then."""

    def __init__(self, mischief: Mischief, trainer: brim.Trainer, folder: Path) -> None:
        self.mischief, self.trainer = mischief, trainer
        self.forwards = self.files = self.steps = 0
        self.folder = str(folder)
        self.process = os.getpid()
        gate = trainer.model.gate
        assert isinstance(gate, nn.Module)
        gate.register_forward_hook(self._on_forward)
        register_optimizer_step_post_hook(self._on_step)
        sys.addaudithook(self._on_event)

    def _on_forward(self, gate: nn.Module, inputs: Any, hidden: Tensor) -> None:
        if gate.training:
            self.forwards += 1
            if (act := self.mischief.at_forward.get(self.forwards)) is not None:
                act(hidden)

    def _on_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.steps += 1
        if (act := self.mischief.at_step.get(self.steps)) is not None:
            act(self.trainer)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if os.getpid() == self.process and (event in CHANGES or self._is_writing(event, arguments)):
            self.files += 1
            if (act := self.mischief.at_file.get(self.files)) is not None:
                act()

    def _is_writing(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event != "open":
            return False
        path, _, flags = arguments
        return bool(flags & (os.O_WRONLY | os.O_RDWR)) and str(path).startswith(self.folder)


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def send(number: int, to_all: bool) -> Callable[..., None]:
    """A signal to this process, or to its loader processes as well, as some schedulers send it."""
    return lambda *_: os.killpg(0, number) if to_all else os.kill(os.getpid(), number)


def no_memory(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB")


def no_memory_for_gradients(hidden: Tensor) -> None:
    hidden.register_hook(no_memory)  # type: ignore[no-untyped-call]
