"""Capture trap 2: without its generator the graph draws the same numbers at every replay, or other ones than eager."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.gpu


class Noise(nn.Module):
    """A loss of random numbers and nothing else, drawn in several ways."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def calculate_loss(self, batch):
        drawn = torch.rand(64, device=batch.device).mean() + torch.randn(64, device=batch.device).mean()
        whole = torch.randint(100, (64,), device=batch.device).float().mean() + torch.bernoulli(batch.abs() % 1).mean()
        return drawn + whole + nn.functional.dropout(batch, 0.5).mean() + 0 * self.weight.sum()


def test_every_replay_draws_what_the_eager_step_would_have_drawn(twins):
    batches = [twins.rows(32)[0]] * 50
    eager, captured = twins(Noise, lambda: batches, loss_fn=None, epochs=1)
    assert captured.is_accounted_for
    assert captured.losses == eager.losses
    assert len(set(captured.losses)) == 50
    assert torch.equal(captured.random, eager.random)


def test_eager_steps_between_replays_leave_the_stream_in_order(twins):
    x, y = twins.rows(671)  # the last batch of each epoch has another shape
    eager, captured = twins(lambda: twins.mlp(nn.Dropout(0.5)), (x, y), epochs=4)
    assert captured.is_accounted_for
    assert captured.equals(eager)
    assert torch.equal(captured.random, eager.random)
