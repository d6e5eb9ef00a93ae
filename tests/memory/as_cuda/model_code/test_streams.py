"""Model code that orders its work by streams and events, forecast where there may be no GPU."""

import torch
from torch import nn

from brim.memory.forecast import forecast


class Orders(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        side, began = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
        began.record()
        torch.cuda.nvtx.range_push("layer")
        with torch.cuda.stream(side), torch.cuda.device(x.device), torch.cuda.nvtx.range("inner"):
            side.wait_stream(torch.cuda.current_stream())
            result = self.layer(x)
            result.record_stream(side)
        torch.cuda.nvtx.range_pop()
        torch.cuda.current_stream().wait_event(side.record_event())
        torch.cuda.reset_peak_memory_stats()
        ended = torch.cuda.Event(enable_timing=True)
        return result * began.elapsed_time(ended) if side.query() else x


def plain():
    return nn.Linear(8, 8)


def allocated(model):
    return forecast(model, lambda n: ((torch.empty(n, 8),), {}), lambda out: out.sum(), batch_size=4, card="T4")


def test_streams_events_and_marks_change_nothing_but_what_is_computed():
    assert allocated(Orders).parts["parameters"] == allocated(plain).parts["parameters"]


def test_afterwards_torchs_own_are_as_before():
    names = ("Stream", "Event", "current_stream", "stream", "device", "set_device")
    before = [getattr(torch.cuda, name) for name in names]
    allocated(Orders)
    assert [getattr(torch.cuda, name) for name in names] == before
    assert "record_stream" not in vars(torch._subclasses.FakeTensor)
