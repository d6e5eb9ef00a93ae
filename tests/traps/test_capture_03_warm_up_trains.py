"""Capture trap 3: warming up, capturing and proving run the step, and move what a step moves."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.gpu


class Remembering(nn.Module):
    """State of every kind: weights, statistics, a counter and a running mean of its own."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 1)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x):
        if self.training:
            self.count.add_(1)
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.outer(nn.functional.dropout(self.norm(self.inner(x - self.mean)), 0.2, self.training))


@pytest.mark.parametrize("steps", [1, 3, 6, 12, 40])  # before, while and after it is captured
def test_after_any_number_of_steps_everything_stands_where_eager_steps_leave_it(twins, steps):
    capture = "auto" if steps < 40 else "require"
    eager, tried = twins(Remembering, twins.rows(), capture, max_steps=steps)
    assert int(tried.model.count) == int(tried.model.norm.num_batches_tracked) == steps
    assert tried.differs_from(eager) <= 1e-6
    assert torch.equal(tried.random, eager.random)
    assert {int(state["step"]) for state in tried.optimizer.state.values()} == {steps}


def test_a_step_that_was_tried_and_refused_leaves_nothing_behind(twins):
    class Refused(Remembering):
        def forward(self, x):
            return super().forward(x) + float(x[0, 0].item() > 9)

    eager, tried = twins(Refused, twins.rows(), "auto")
    assert not tried.report.captured
    assert tried.equals(eager)
    assert torch.equal(tried.random, eager.random)
