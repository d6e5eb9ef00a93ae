"""The optimizer of a run, from a name, a function or an instance."""

import difflib
import inspect
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from brim.errors import ConfigError

OptimizerLike = str | Callable[[Iterable[nn.Parameter]], Optimizer] | Optimizer


def make_optimizer(wanted: OptimizerLike | None, model: nn.Module, lr: float) -> Optimizer:
    """The optimizer of a run: AdamW unless said otherwise; names are those in ``torch.optim``, in any case.

    An optimizer that brim builds from a name is the fused one on CUDA: the same mathematics in fewer kernels.
    """
    if isinstance(wanted, Optimizer):
        return wanted
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ConfigError(f"{type(model).__name__} has no parameter with requires_grad, so there is nothing to train")
    if wanted is None or isinstance(wanted, str):
        maker = _optimizer_class(wanted or "AdamW")
        on_cuda = all(parameter.device.type == "cuda" for parameter in parameters)
        can_fuse = "fused" in inspect.signature(maker).parameters
        return maker(parameters, lr=lr, **({"fused": True} if on_cuda and can_fuse else {}))
    made = wanted(parameters)
    if not isinstance(made, Optimizer):
        raise ConfigError(f"optimizer= returned a {type(made).__name__}; it must return a torch optimizer")
    return made


def _optimizer_class(name: str) -> Callable[..., Optimizer]:
    known = {
        key.lower(): value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    }
    if name.lower() not in known:
        names = [value.__name__ for value in known.values()]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise ConfigError(f"optimizer={name!r} is not in torch.optim; did you mean {near[0]!r}?")
    return known[name.lower()]
