import pytest
import torch
from torch import nn

from brim.engine.step.optimizer_maker import optimizer_maker


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
