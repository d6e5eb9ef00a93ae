"""The optimizer of a run, for other parameters."""

import pytest
import torch
from torch import nn

from brim.engine.components.optimizer import optimizer_like, optimizer_maker


@pytest.mark.parametrize(
    "wanted",
    ["SGD", {"name": "SGD"}, lambda parameters: torch.optim.SGD(parameters, lr=0.5),
     torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.5)],
    ids=["name", "mapping", "function", "optimizer"],
)  # fmt: skip
def test_the_optimizer_is_made_for_other_parameters(wanted):
    parameters = list(nn.Linear(2, 3).parameters())
    made = optimizer_maker(wanted, 0.5)(parameters)
    assert type(made) is torch.optim.SGD
    assert made.param_groups[0]["lr"] == 0.5
    assert [id(p) for p in made.param_groups[0]["params"]] == [id(p) for p in parameters]


class Own(torch.optim.Optimizer):
    def __init__(self, params, lr, factor=1.0):
        super().__init__(params, {"lr": lr, "factor": factor})

    def step(self, closure=None):
        pass


class Passing(torch.optim.SGD):
    def __init__(self, params, **settings):
        super().__init__(params, **settings)


class Inheriting(torch.optim.AdamW):
    pass


@pytest.mark.parametrize(
    "maker",
    [
        lambda p: torch.optim.AdamW(p, lr=0.5, betas=(0.1, 0.2), weight_decay=0.3, amsgrad=True, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.5, fused=True),
        lambda p: torch.optim.Adam(p, decoupled_weight_decay=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
        lambda p: torch.optim.Adafactor(p),
        lambda p: Own(p, 0.25, factor=3.0),
        lambda p: Inheriting(p, lr=0.25, amsgrad=True),
        lambda p: Passing(p, lr=0.1, momentum=0.9),
    ],
    ids=["AdamW", "fused", "Adam", "SGD", "RMSprop", "Adafactor", "own", "inheriting", "passing on"],
)
def test_optimizers_keep_class_and_settings(maker):
    first, second = nn.Linear(4, 4), nn.Linear(3, 3)
    original = maker(first.parameters())
    made = optimizer_like(original, iter(second.parameters()))
    assert type(made) is type(original)
    assert [id(p) for p in made.param_groups[0]["params"]] == [id(p) for p in second.parameters()]
    left, right = ({k: v for k, v in o.param_groups[0].items() if k != "params"} for o in (made, original))
    assert left == right
    assert len(original.param_groups[0]["params"]) == 2


def test_what_a_scheduler_adds_to_the_groups_is_no_setting():
    original = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    torch.optim.lr_scheduler.LinearLR(original)
    assert optimizer_like(original, nn.Linear(2, 2).parameters()).param_groups[0]["momentum"] == 0
