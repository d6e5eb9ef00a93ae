"""What a graph takes for fixed is looked at as it was when the graph was captured."""

import pytest
import torch
from torch import nn

from brim.engine.captured.assumptions import Assumptions
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step.eager_step import EagerStep


@pytest.fixture
def eager():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return EagerStep(loss_of(model, nn.MSELoss()), optimizer, Precision("32", torch.device("cpu")))


def test_nothing_is_broken_while_only_weights_and_the_learning_rate_move(eager):
    model = eager.compute.model
    assumptions = Assumptions(eager, model, None)
    eager([(torch.ones(2, 2), torch.ones(2, 1))])
    eager.optimizer.param_groups[0]["lr"] = 0.2
    assert assumptions.why_broken() is None and assumptions.why_broken_on_host() is None


def test_each_is_told_by_what_changed(eager):
    model = eager.compute.model
    assumptions = Assumptions(eager, model, None)
    model.bias.requires_grad_(False)
    assert "frozen, thawed or switched" in assumptions.why_broken()
    model.bias.requires_grad_(True)
    eager.clip_norm = 1.0
    assert assumptions.why_broken() == "the settings of the optimizer changed"
    eager.clip_norm = None
    assert assumptions.why_broken() is None
    model.scale = 2.0
    assert assumptions.why_broken_on_host() == "an attribute of Linear changed"
