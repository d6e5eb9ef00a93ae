"""How the weights of convolutions lie in memory: as they come, or with the channels last, which many GPUs prefer."""

import torch
from torch import nn
from torch.nn.parameter import is_lazy

PRESERVE, CHANNELS_LAST = CHOICES = ("preserve", "channels_last")
FORMATS: dict[type[nn.Module], torch.memory_format] = {
    nn.Conv2d: torch.channels_last, nn.ConvTranspose2d: torch.channels_last,
    nn.Conv3d: torch.channels_last_3d, nn.ConvTranspose3d: torch.channels_last_3d,
}  # fmt: skip


def lay_out(model: nn.Module, name: str) -> int:
    """Let the weights of the model's convolutions lie so; returns how many there are.

    Parameters stay the same objects with the same numbers, and activations follow: a convolution whose weights have
    their channels last gives outputs that have, whatever its input.

    >>> convolution = nn.Conv2d(3, 8, 3)
    >>> lay_out(nn.Sequential(convolution, nn.ReLU()), "channels_last"), convolution.weight.stride()
    (1, (27, 1, 9, 3))
    """
    if name == PRESERVE:
        return 0
    found = 0
    for module in model.modules():
        layout = next((layout for kind, layout in FORMATS.items() if isinstance(module, kind)), None)
        weight = dict(module._parameters).get("weight")  # not there where it is computed from others, as by weight_norm
        if layout is not None and weight is not None and not is_lazy(weight):
            weight.data = weight.data.contiguous(memory_format=layout)
            found += 1
    return found
