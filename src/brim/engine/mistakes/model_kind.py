"""What is handed over as a model, before anything is asked of it."""

from typing import Any

from torch import nn

from brim.errors import ConfigError


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
        what = f"a {type(model).__name__}; hand over a torch.nn.Module"
    raise ConfigError(f"model is {what}")
