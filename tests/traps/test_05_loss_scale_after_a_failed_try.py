"""Trap 5: gradients of a failed try were unscaled; the scaler refuses to do it again, or forgets to."""

import torch
from torch import nn

import brim


def test_the_loss_scale_is_taken_out_once_for_the_try_that_counts(net, data, weights, monkeypatch):
    real, calls = torch.nn.utils.clip_grad_norm_, []

    def clip_grad_norm_(*args, **settings):
        calls.append(1)
        if len(calls) == 1:  # after the gradients were unscaled
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(*args, **settings)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clip_grad_norm_)
    trained = []
    for scale in (1.0, 1024.0):
        model = net()
        step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), clip_norm=0.1, tell=str)
        step.guard.step.precision.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        calls.clear()
        step(data())
        assert len(calls) == 2
        trained.append(weights(model))
    assert (trained[0] - trained[1]).norm() <= 1e-6 * trained[0].norm()
