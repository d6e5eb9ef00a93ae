"""What is handed over as a model, before anything is asked of it."""

from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from brim.errors import ConfigError, a_type


def check_model(model: Any) -> None:
    """Refuse what is no module: a class, a function, a path, the parameters of one.

    >>> check_model(nn.Linear(2, 1))
    """
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type):
        what = f"the class {model.__name__}; hand over an object of it: {model.__name__}(...)"
    elif isinstance(model, str | bytes) or hasattr(model, "__fspath__"):
        what = "a name, not a model; load it first, with brim.load or from_pretrained"
    elif isinstance(model, dict):
        what = "a dict, weights perhaps; make the model and call model.load_state_dict(...) on it"
    elif callable(model) and hasattr(model, "__name__"):
        what = f"the function {model.__name__}, which has no parameters to train; hand over a torch.nn.Module"
    else:
        what = f"{a_type(model)}; hand over a torch.nn.Module"
    raise ConfigError(f"model is {what}")


def check_weights(model: nn.Module) -> None:
    """Refuse weights that are not there yet, or that autograd cannot train.

    >>> check_weights(nn.Linear(2, 1))
    """
    name = type(model).__name__
    if any(is_lazy(parameter) for parameter in (*model.parameters(), *model.buffers())):
        raise ConfigError(f"{name} has lazy layers, whose shapes are not known yet; call it once before: model(x)")
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise ConfigError(
            f"{name} was made under torch.inference_mode(), and such weights cannot be trained; make it outside, or "
            "under torch.no_grad()"
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ConfigError(
            f"{name} is on the meta device and has no weights; make it on a real one, or call "
            "model.to_empty(device='cpu') and load them"
        )
