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


@pytest.mark.parametrize(
    "model", [lambda: nn.Sequential(nn.Linear(256, 512), nn.Tanh()), InChunks], ids=["plain", "chunks"]
)
@pytest.mark.parametrize("size", [1024, 3072, 6144])
def test_the_peak_in_between_is_that_of_a_trace(model, size):
    job = make_job(model, lambda n: ((torch.empty(n, 256),), {}), lambda output: output.mean())
    setting = make_setting("NVIDIA A10G", None, None)
    low, high = trace_on(job, 1024, setting), trace_on(job, 4096, setting)
    line = line_through(low, high, 1024, 4096)
    true = live_peak(trace_on(job, size, setting).events)
    # Beyond the larger size chunks are missing, of which each keeps what its gradient needs.
    close = 0.03 if model is not InChunks or size == 4096 else 0.5
    assert live_peak(line.events_at(size)) == pytest.approx(true, rel=close)
