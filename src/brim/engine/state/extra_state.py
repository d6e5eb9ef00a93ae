"""What modules keep beside tensors (``get_extra_state``), on disk without pickle's powers.

safetensors holds tensors only. An extra state that is one is written as such; others go into the metadata of the file,
as what ``torch.load(weights_only=True)`` reads: numbers, strings, tensors, and lists, tuples and dicts of these.
"""

import base64
import io
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from brim.engine.state.host_copy import host_copy
from brim.errors import ConfigError

KEY = "brim.extra_state"  # in the metadata
SUFFIX = "_extra_state"  # torch's own name for it
MOST_BYTES = 64 << 20  # of all of it: the header of a safetensors file has 100 MB at most


def is_extra(name: str) -> bool:
    """Whether this entry of a state_dict is a module's extra state.

    >>> is_extra("encoder._extra_state"), is_extra("encoder.weight")
    (True, False)
    """
    return name == SUFFIX or name.endswith(f".{SUFFIX}")


def split_extra(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a state_dict, and the extra states that are none."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in state.items() if not isinstance(value, Tensor)}


def encode_extra(extra: Mapping[str, Any]) -> dict[str, str]:
    """Metadata that holds these extra states; nothing where there are none."""
    if not extra:
        return {}
    written = io.BytesIO()
    torch.save(host_copy(dict(extra)), written)
    if len(written.getbuffer()) > MOST_BYTES:
        raise ValueError(f"the extra state of {', '.join(extra)} takes more than {MOST_BYTES >> 20} MiB")
    return {KEY: base64.b64encode(written.getvalue()).decode("ascii")}


def decode_extra(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """What :func:`encode_extra` put into the metadata of a file; a file that says otherwise is refused."""
    if not metadata or KEY not in metadata:
        return {}
    extra = torch.load(io.BytesIO(base64.b64decode(metadata[KEY])), map_location="cpu", weights_only=True)
    if not isinstance(extra, dict) or not all(isinstance(name, str) for name in extra):
        raise ValueError("its extra state is none of a module's")
    return extra


def check_extra_state(model: nn.Module, of: str = "") -> None:
    """Refuse an extra state that could not be saved and read again, before training and not after it."""
    for name, value in split_extra(model.state_dict())[1].items():
        try:
            decode_extra(encode_extra({name: value}))
        except Exception as error:  # whatever pickling an object of the user's comes to
            owner = name.rpartition(".")[0] or type(model).__name__
            said = f"get_extra_state of {of}{owner}" if is_extra(name) else f"state_dict of {of}{owner}"
            raise ConfigError(
                f"{said} returns something that cannot be saved without running code when it is loaded "
                f"({type(error).__name__}); return numbers, strings, tensors, and lists, tuples and dicts of these"
            ) from error


def take_extra(model: nn.Module, extra: Mapping[str, Any]) -> None:
    """Hand extra states to the modules that they are of, as ``load_state_dict`` does."""
    for name, value in extra.items():
        model.get_submodule(name.removesuffix(SUFFIX).rstrip(".")).set_extra_state(value)


def extra_states(model: nn.Module) -> dict[str, Any]:
    """The extra states of all modules of a model, without making its state_dict."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            found[f"{name}.{SUFFIX}".lstrip(".")] = module.get_extra_state()
    return found
