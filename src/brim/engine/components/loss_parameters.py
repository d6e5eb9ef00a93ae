"""Parameters that a loss has of its own: a learned temperature, the centres of classes."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

from brim.errors import ConfigError


def check_loss_parameters(loss_fn: Any, optimizer: Optimizer) -> None:
    """Refuse a criterion with parameters that the optimizer does not hold: nobody would train them.

    >>> check_loss_parameters(nn.MSELoss(), None)
    """
    if not isinstance(loss_fn, nn.Module):
        return
    own = [name for name, parameter in loss_fn.named_parameters() if parameter.requires_grad]
    if not own:
        return
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    left = [name for name in own if id(loss_fn.get_parameter(name)) not in held]
    if left:
        raise ConfigError(
            f"loss_fn has parameters of its own ({', '.join(left[:3])}), which the optimizer does not hold, so nobody "
            "would train them; pass optimizer=lambda parameters: AdamW([*parameters, *loss_fn.parameters()]), make it "
            "a part of the model, or freeze them: loss_fn.requires_grad_(False)"
        )
