"""Steps between two sizes, also those that repeat something more often the larger they are."""

import pytest
import torch
from torch import nn

from brim.frontier.line import line_through
from brim.frontier.recomputed_trace import live_peak
from brim.memory.forecast import make_job, make_setting, trace_on


class InChunks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(256, 512), nn.Linear(512, 2048)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return sum(self.last(part).square().mean() for part in hidden.split(512)) / len(x)


def peaks(model, size):
    """At ``size``, from traces of 1024 and 4096 and from one of its own."""
    job = make_job(model, lambda n: ((torch.empty(n, 256),), {}), lambda output: output.mean())
    setting = make_setting("NVIDIA A10G", None, None)
    line = line_through(trace_on(job, 1024, setting), trace_on(job, 4096, setting), 1024, 4096)
    return live_peak(line.events_at(size)), live_peak(trace_on(job, size, setting).events)


@pytest.mark.parametrize("size", [1024, 3072, 4096, 6144])
def test_the_peak_of_what_grows_is_that_of_a_trace(size):
    found, true = peaks(lambda: nn.Sequential(nn.Linear(256, 512), nn.Tanh()), size)
    assert found == pytest.approx(true, rel=1e-3)


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("size", "close"),
    [
        (4096, 0.0),  # that is traced
        (1024, 0.02),  # temporaries of the chunks between are smaller than those at the ends
        (3072, 0.02),
        (1700, 0.05),  # a chunk that is not full takes as much for its temporaries as others
        (6144, 0.05),  # beyond the larger size, where no plan asks: chunks grow that would be more
    ],
)
def test_the_peak_of_what_is_repeated_is_near_that_of_a_trace(size, close):
    found, true = peaks(InChunks, size)
    assert found == pytest.approx(true, rel=close)
