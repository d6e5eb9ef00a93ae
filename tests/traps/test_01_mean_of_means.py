"""Trap 1: a mean of the slices' means weighs a short slice as much as a long one."""

import pytest
import torch

import brim


def masked(model, batch):
    """Rows weigh differently, as padded sequences do."""
    weight = (batch[0][:, :1] > 0).float() * 5 + 1
    return brim.Loss(((model(batch[0]) - batch[1]).square() * weight).sum(), weight.sum())


@pytest.mark.parametrize("loss_fn", [torch.nn.MSELoss(), masked], ids=["samples", "weights"])
@pytest.mark.parametrize("limit", [2, 3, 4])
def test_slices_count_by_what_is_in_them_and_not_as_means_of_means(net, data, weights, loss_fn, limit):
    trained = []
    for model in (net(), net(limit)):
        step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, tell=lambda sentence: None)
        step(data(7))  # ragged whatever the slices are
        trained.append(weights(model))
    assert (trained[0] - trained[1]).norm() <= 1e-6 * trained[0].norm()
