"""Trap 5: gradients of a failed try were unscaled; the scaler refuses to do it again, or forgets to."""

import torch
from helpers.faults import At, failing
from torch import nn

import brim


def test_the_loss_scale_is_taken_out_once_for_the_try_that_counts(net, data, weights, monkeypatch):
    at = At(1)  # after the gradients were unscaled
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", failing(torch.nn.utils.clip_grad_norm_, at))
    trained = []
    for scale in (1.0, 1024.0):
        model = net()
        step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), clip_norm=0.1, tell=str)
        step.guard.step.precision.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        at.calls = 0
        step(data())
        assert at.calls == 2
        trained.append(weights(model))
    assert (trained[0] - trained[1]).norm() <= 1e-6 * trained[0].norm()
