"""The weights of a model as one vector, to compare trainings by."""

import torch
from torch import Tensor, nn


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])
