"""Trap 9: a contrastive loss of slices is another loss."""

import pytest
import torch
from torch import nn

import brim
from brim.errors import CannotFit


def in_batch_negatives(model, batch):
    return nn.functional.cross_entropy(model(batch[0]) @ batch[1].T, torch.arange(len(batch[0])))


def test_a_loss_across_the_batch_is_not_sliced_in_silence(net, data, weights):
    model = net(limit=4)
    before = weights(model)
    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), in_batch_negatives, tell=str)
    with pytest.raises(CannotFit, match="looks across the batch"):
        step(data())
    assert torch.equal(weights(model), before)
