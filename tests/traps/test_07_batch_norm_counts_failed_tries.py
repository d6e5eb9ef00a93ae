"""Trap 7: running statistics take in what failed tries saw."""

import pytest
import torch
from torch import nn

import brim


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_batch_norm_does_not_count_failed_tries_and_says_that_slices_differ(net, data, where):
    told, failing, plain = [], net(at=(2,), where=where, norm=True), net(norm=True)
    for model, micro_batch in ((failing, 4), (plain, 2)):  # the first slice of 4 was seen, the second one fails
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = brim.Step(model, optimizer, nn.MSELoss(), micro_batch=micro_batch, tell=told.append)
        for seed in range(2):
            step(data(seed=seed))
    assert sum("BatchNorm" in sentence for sentence in told) == 2  # once for each of the two steps
    assert all(torch.equal(a, b) for a, b in zip(failing.buffers(), plain.buffers(), strict=True))
