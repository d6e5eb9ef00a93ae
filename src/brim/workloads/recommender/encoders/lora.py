"""Low-rank adapters beside an encoder's weights (Hu et al., 2021), through peft."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from brim.errors import ConfigError

LoraLike = int | Mapping[str, Any]
ADAPTER = ".lora_"  # in the names of the parameters that peft adds


def lora_arguments(lora: LoraLike) -> dict[str, Any]:
    """The arguments of ``peft.LoraConfig``: of a rank alone twice the rank as alpha, and no dropout.

    >>> lora_arguments(8)
    {'r': 8, 'lora_alpha': 16, 'lora_dropout': 0.0}
    """
    if isinstance(lora, Mapping):
        return dict(lora)
    if isinstance(lora, bool) or not isinstance(lora, int) or lora < 1:
        raise ConfigError(f"lora={lora!r} must be a rank of at least 1, or a mapping of peft.LoraConfig's arguments")
    return {"r": lora, "lora_alpha": 2 * lora, "lora_dropout": 0.0}


def add_lora(model: nn.Module, lora: LoraLike) -> None:
    """Put adapters beside the weights of ``model``, in place. They begin as zero: its outputs stay what they were."""
    arguments = lora_arguments(lora)
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError("lora= needs peft; install it with pip install peft") from error
    try:
        if getattr(model.config, "model_type", None) == "gpt2":
            arguments = {"fan_in_fan_out": True, **arguments}  # its Conv1D holds weights the other way round
        inject_adapter_in_model(LoraConfig(**arguments), model)
    except (TypeError, ValueError, AttributeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ConfigError(
            f"lora={lora!r} cannot be added to {type(model).__name__}: {reason}; name its layers: "
            "lora={'r': 8, 'target_modules': ['q_proj', 'v_proj']}"
        ) from error


def is_adapter(name: str) -> bool:
    """Whether the parameter of that name is one that peft added."""
    return ADAPTER in f".{name}"
