"""Which number format the step computes in."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from brim.errors import ConfigError

NAMES = {
    "32": "32", "fp32": "32", "32-true": "32",
    "tf32": "tf32",
    "bf16": "bf16", "bf16-mixed": "bf16",
    "fp16": "fp16", "16": "fp16", "16-mixed": "fp16",
    "auto": "auto",
}  # fmt: skip
FULL_PRECISION = nullcontext()


def resolve_precision(name: str, device: torch.device) -> str:
    """One of 32, tf32, bf16, fp16. ``auto`` is bf16 on GPUs that compute in it, else fp16 on GPUs, else 32."""
    precision = NAMES.get(str(name))
    if precision is None:
        raise ConfigError(f"precision={name!r} is not known; use one of {', '.join(NAMES)}")
    if precision == "auto":
        if device.type != "cuda":
            return "32"
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"
    if precision == "fp16" and device.type == "cpu":
        raise ConfigError("precision='16-mixed' needs a GPU; on the CPU use '32' or 'bf16-mixed'")
    return precision


class Precision:
    """Autocast around the forward pass, and the loss scale that fp16 needs around the backward one."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = resolve_precision(name, device)
        self.device = device
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.name)
        self.scaler = torch.amp.GradScaler(device.type) if self.name == "fp16" else None
        self.tells_if_stepped = False

    def autocast(self) -> AbstractContextManager[Any]:
        return FULL_PRECISION if self.dtype is None else torch.autocast(self.device.type, self.dtype)

    def backward(self, loss: Tensor) -> None:
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """Take the loss scale out of the gradients; needed before anything looks at their size."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def forget_unscaling(self) -> None:
        """Forget what was done to gradients that are computed anew: the scaler would refuse to unscale them again."""
        if self.scaler is not None:
            self.scaler._per_optimizer_states.clear()

    def step(self, optimizer: Optimizer) -> bool:
        """Step, unless fp16 overflowed: then the scale shrinks, and the weights stay. False where that is known.

        Whether it overflowed is known on the device. The host asks, and waits, only where a schedule must not advance.
        """
        if self.scaler is None:
            optimizer.step()
            return True
        self.scaler.step(optimizer)
        if not self.tells_if_stepped:
            self.scaler.update()
            return True
        before = self.scaler.get_scale()
        self.scaler.update()
        return self.scaler.get_scale() >= before
