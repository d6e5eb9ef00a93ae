"""The first call of a module in every step: where the script calls its model, and with what."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch


class ModelCalls:
    """Watches calls of modules while it is installed; it is asked thousands of times a step, so not for long.

    Args:
        on_call: Told the frame of the first call in a step that is for training.
    """

    def __init__(self, on_call: Callable[[FrameType], None]) -> None:
        self.autocast = False
        self.data_parallel = 0  # devices under nn.DataParallel
        self.samples = 0  # of the model's first input
        self._on_call = on_call
        self._seen = False
        self._hook: Any = None

    def install(self) -> None:
        self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._called)

    def remove(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def begin_step(self) -> None:
        self._seen = False

    def _called(self, module: torch.nn.Module, inputs: Any) -> None:
        if self._seen or not torch.is_grad_enabled():
            return
        self._seen = True
        self._on_call(sys._getframe(1))
        kinds = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
        self.autocast |= any(torch.is_autocast_enabled(kind) for kind in kinds)
        if isinstance(module, torch.nn.DataParallel):
            self.data_parallel = len(module.device_ids)
        first = next((value for value in inputs if isinstance(value, torch.Tensor) and value.dim()), None)
        self.samples = 0 if first is None else len(first)
