"""Trap 8: a failed try has drawn dropout masks, and the next one draws others."""

import pytest
import torch
from torch import nn

import brim


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_failed_tries_use_up_no_random_numbers(net, data, weights, where, at):
    trained = []
    for model, micro_batch in ((net(at=(at,), where=where, dropout=0.5), 4), (net(dropout=0.5), None)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = brim.Step(model, optimizer, nn.MSELoss(), micro_batch=micro_batch, tell=str)
        torch.manual_seed(1)
        for number in range(2):
            if micro_batch is None:  # the run without a failure, sliced as the other one is in the end
                step.guard.step.micro_batch = 4 if number == 0 and at == 3 else 2
            step(data(seed=number))
        trained.append((weights(model), torch.rand(1)))
    assert torch.equal(trained[0][0], trained[1][0])
    assert torch.equal(trained[0][1], trained[1][1])
