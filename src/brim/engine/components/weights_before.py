"""The weights that a model came with, until its run begins."""

from types import TracebackType

import torch
from torch import Tensor, nn

from brim.engine.components.precision import Precision


class WeightsBefore:
    """Where a precision makes weights shorter, a run that is refused leaves them as they were.

    What is kept costs nothing in host memory before they are converted: it is those very tensors. From a GPU they are
    copied, for there may be no room for both.

    >>> model = nn.Linear(2, 1)
    >>> precision = Precision("bf16-true", torch.device("cpu"))
    >>> try:
    ...     with WeightsBefore(precision, model):
    ...         precision.convert(model)
    ...         raise ValueError("refused")
    ... except ValueError:
    ...     model.weight.dtype
    torch.float32
    """

    def __init__(self, precision: Precision, *modules: object) -> None:
        wanted = modules if precision.weights_dtype is not None else ()
        parts = [part for module in wanted if isinstance(module, nn.Module) for part in module.modules()]
        self._parameters = [
            (parameter, _kept(parameter), None if parameter.grad is None else _kept(parameter.grad))
            for parameter in dict.fromkeys(p for part in parts for p in part._parameters.values() if p is not None)
        ]
        self._buffers = [
            (part, name, buffer.device, _kept(buffer)[1])
            for part in parts
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]

    def __enter__(self) -> "WeightsBefore":
        return self

    def drop(self) -> None:
        """The run begins: nobody wants them back."""
        self._parameters.clear()
        self._buffers.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._put_back()
        self.drop()

    def _put_back(self) -> None:
        """The parameters stay the same objects."""
        for parameter, (device, weights), gradient in self._parameters:
            parameter.grad = None  # it must have the type of its parameter at every moment
            parameter.data = weights.to(device)
            if gradient is not None:
                parameter.grad = gradient[1].to(gradient[0])
        for part, name, device, buffer in self._buffers:
            part._buffers[name] = buffer.to(device)


def _kept(tensor: Tensor) -> tuple[torch.device, Tensor]:
    """Where a tensor is, and what it holds, in host memory; another object, which conversions leave alone."""
    return tensor.device, tensor.detach().cpu()
