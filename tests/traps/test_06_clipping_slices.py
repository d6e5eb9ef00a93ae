"""Trap 6: clipping each slice's gradient is not clipping the gradient."""

import torch
from torch import nn

import brim


def test_the_gradient_of_the_whole_window_is_clipped_and_not_that_of_slices(net, data, weights):
    trained = []
    for model in (net(), net(limit=2)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        brim.Step(model, optimizer, nn.MSELoss(), clip_norm=0.05, tell=str)(data(), data(5, seed=1))
        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        assert abs(float(norm) - 0.05) <= 1e-5
        trained.append(weights(model))
    assert (trained[0] - trained[1]).norm() <= 1e-6 * trained[0].norm()
