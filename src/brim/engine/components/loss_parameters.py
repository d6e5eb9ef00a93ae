"""Parameters that a loss has of its own: a learned temperature, the centres of classes."""

from typing import Any

from torch.optim import Optimizer

from brim.engine.components.two_pass import criterion_in
from brim.errors import ConfigError


def check_loss_parameters(loss_fn: Any, optimizer: Optimizer) -> None:
    """Refuse a criterion with parameters that the optimizer does not hold: nobody would train them.

    >>> from torch import nn
    >>> check_loss_parameters(nn.MSELoss(), None)
    """
    criterion = criterion_in(loss_fn)
    if criterion is None:
        return
    own = [name for name, parameter in criterion.named_parameters() if parameter.requires_grad]
    if not own:
        return
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    left = [name for name in own if id(criterion.get_parameter(name)) not in held]
    if left:
        named = "loss_fn" if criterion is loss_fn else "loss_fn.loss"
        raise ConfigError(
            f"loss_fn has parameters of its own ({', '.join(left[:3])}), which the optimizer does not hold, so nobody "
            f"would train them; pass optimizer=lambda parameters: AdamW([*parameters, *{named}.parameters()]), make it "
            f"a part of the model, or freeze them: {named}.requires_grad_(False)"
        )
