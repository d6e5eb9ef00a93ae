"""Which number format the step computes in."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.data.batches.batch import Batch, cast_floats
from brim.engine.calling.optimizer_call import step_optimizer
from brim.engine.components.two_pass import criterion_in
from brim.errors import ConfigError
from brim.float32_products import float32_products

BF16_TRUE, IEEE = "bf16-true", "32-ieee"
NAMES = {
    "32": "32", "fp32": "32", "32-true": "32", IEEE: "32",
    "tf32": "tf32",
    "bf16": "bf16", "bf16-mixed": "bf16",
    "fp16": "fp16", "16": "fp16", "16-mixed": "fp16",
    BF16_TRUE: BF16_TRUE,
    "auto": "auto",
}  # fmt: skip
FP16_TRUE = ("16-true", "fp16-true")
FP64_TRUE = ("64", "64-true", "fp64", "float64", "double")
FULL_PRECISION = nullcontext()


def refuse_weights_in(name: str | int) -> None:
    """Say why weights in fp16 or fp64 are not made, to whoever asks for them by the name that others give them."""
    if str(name) in FP16_TRUE:
        raise ConfigError(
            f"precision={name!r} would keep weights and optimizer state in fp16, where gradients and Adam's eps become "
            f"0; use {BF16_TRUE!r}, whose numbers have the range of fp32, or '16-mixed'"
        )
    if str(name) in FP64_TRUE:
        raise ConfigError(
            f"precision={name!r} is the model's own: hand over model.double() and data in float64, and leave precision "
            "out, which changes neither"
        )


def resolve_precision(name: str, device: torch.device) -> str:
    """One of 32, tf32, bf16, fp16, bf16-true.

    ``auto`` is bf16 on GPUs that compute in it, else fp16 on GPUs (both with TF32 for what stays fp32), else 32.
    """
    refuse_weights_in(name)
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
    """Autocast around the forward pass, and the loss scale that fp16 needs around the backward one.

    With ``bf16-true`` there is neither: weights, and with them gradients and optimizer state, are bfloat16, and so is
    what a batch holds of floating-point numbers. That is ``model.bfloat16()`` in a loop by hand.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = resolve_precision(name, device)
        # What is left in fp32: as torch is set, unless TF32 was asked for, by its name or with all that is faster; or
        # unless all 24 bits of every number were.
        self.tf32 = True if self.name == "tf32" or (name == "auto" and device.type == "cuda") else None
        if name == IEEE:
            self.tf32 = False
        self.device = device
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.name)
        self.scaler = torch.amp.GradScaler(device.type) if self.name == "fp16" else None
        self.tells_if_stepped = False
        self.weights_dtype = torch.bfloat16 if self.name == BF16_TRUE else None  # None: whatever the model has

    @property
    def remark(self) -> str:
        """What a run says of it: numbers are others than in fp32."""
        if self.weights_dtype is None:
            return ""
        return (
            f"precision={self.name!r}: weights, gradients, optimizer state and floating-point data are bfloat16, which "
            "is another training than in fp32"
        )

    def placed(self, model: nn.Module, loss_fn: Any = None) -> nn.Module:
        """The model, on the device and in the type of its weights; and so is a loss that is a module (its weights)."""
        self.convert(model, loss_fn)
        return model.to(self.device)

    def convert(self, model: nn.Module, loss_fn: Any = None) -> None:
        """Give weights and buffers their type, where that is another; complex numbers and whole ones stay.

        Parameters stay the same objects, so an optimizer that holds them goes on holding them.
        """
        if self.weights_dtype is not None:
            for module in (model, criterion_in(loss_fn)):
                if module is not None:
                    module.bfloat16()

    def cast(self, batch: Batch) -> Batch:
        """The batch in the type that the model computes in: inputs and targets, where they are floating-point."""
        return cast_floats(batch, self.weights_dtype)

    def check_optimizer(self, optimizer: Any) -> None:
        """Refuse, before weights are converted, an optimizer that has stepped in float32: its state would stay so."""
        if self.weights_dtype is None or not isinstance(optimizer, Optimizer):
            return
        for parameter, state in optimizer.state.items():
            kept = [value for value in state.values() if isinstance(value, Tensor) and value.dim() > 0]
            if parameter.dtype == torch.float32 and any(value.dtype == torch.float32 for value in kept):
                raise ConfigError(
                    f"the optimizer has stepped in float32, and precision={self.name!r} makes its weights bfloat16; "
                    "pass a new one, or its name"
                )

    def products(self) -> AbstractContextManager[None]:
        """torch's switches for products of single-precision numbers, while this lasts."""
        return float32_products(self.tf32)

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
            if self.device.type == "cpu":
                step_optimizer(optimizer)
            else:  # where the wrapper's time on the host has not been measured
                optimizer.step()
            return True
        self.scaler.step(optimizer)
        if not self.tells_if_stepped:
            self.scaler.update()
            return True
        before = self.scaler.get_scale()
        self.scaler.update()
        return self.scaler.get_scale() >= before
