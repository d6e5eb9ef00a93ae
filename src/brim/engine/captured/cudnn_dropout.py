"""The state that cuDNN draws the dropout between recurrent layers from: no generator of torch's, but memory of its own.

torch keeps one for each device, out of reach, and hands it to every call of a recurrent network. There it is found.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "the state of cuDNN's dropout"


def cudnn_dropout_state(model: nn.Module, device: torch.device) -> dict[str, Tensor]:
    """The memory itself, under its name, where a step of this model draws from it; every call moves it.

    It is made by the first such call, so the model must have been called before.
    """
    if device.type != "cuda" or not torch.backends.cudnn.enabled or not draws_by_cudnn(model):
        return {}
    with torch.random.fork_rng([device]), torch.no_grad(), torch.autocast("cuda", enabled=False):
        network = nn.RNN(1, 1, 2, dropout=0.5, device=device)  # the smallest that is handed the state
        try:
            with _Looking() as looking:
                network(torch.zeros(1, 1, 1, device=device))
        except _Found:
            pass
    return {} if looking.state is None else {NAME: looking.state}


def draws_by_cudnn(model: nn.Module) -> bool:
    """Whether a recurrent network of this model drops anything between its layers."""
    return any(
        isinstance(module, nn.RNNBase) and module.training and module.dropout > 0.0 and module.num_layers > 1
        for module in model.modules()
    )


class _Found(Exception):
    """The call has shown what it was for, and is not made: it would move the state."""


class _Looking(TorchDispatchMode):
    state: Tensor | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._cudnn_rnn.default:
            self.state = args[-1]
            raise _Found
        return func(*args, **(kwargs or {}))
