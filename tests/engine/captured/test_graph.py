"""A capture that breaks off: torch raises before its allocator hears of the end, which has to be told then."""

from contextlib import contextmanager

import pytest
import torch

from brim.engine.captured.graph import recorded
from brim.engine.captured.trial import capture_stream, repair_generator

MIB = 1 << 20
POOL = (0, 7)


class Stream:
    device = torch.device("cuda", 0)


@pytest.fixture
def allocator(monkeypatch):
    """What torch's allocator is told, by captures that end as torch's do: ``ends`` is cleared by one that broke off."""
    told, ends = [], [True]

    @contextmanager
    def capturing(graph, pool, stream, capture_error_mode):
        told.append(("begin", 0, pool))
        try:
            yield
        finally:
            if not ends:
                raise RuntimeError("operation failed due to a previous error during capture")
            told.append(("end", 0, pool))

    def end(index, pool):
        if ("end", index, pool) in told:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        told.append(("end", index, pool))

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    release = lambda index, pool: told.append(("release", index, pool))  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_releasePool", release, raising=False)
    return told, ends


def test_a_capture_that_ends_is_left_to_torch(allocator):
    told, _ = allocator
    recorded(lambda: None, POOL, Stream())
    assert told == [("begin", 0, POOL), ("end", 0, POOL)]


def test_the_allocator_hears_of_a_capture_that_broke_off(allocator):
    told, ends = allocator
    with pytest.raises(RuntimeError, match="error during capture"):
        recorded(ends.clear, POOL, Stream())
    assert told == [("begin", 0, POOL), ("end", 0, POOL), ("release", 0, POOL)]


def test_an_error_that_leaves_the_capture_whole_is_left_to_torch(allocator):
    told, _ = allocator

    def fails():
        raise KeyError("of the model")

    with pytest.raises(KeyError):
        recorded(fails, POOL, Stream())
    assert told == [("begin", 0, POOL), ("end", 0, POOL)]


@pytest.mark.gpu
def test_memory_is_given_back_and_used_again_after_a_capture_that_broke_off():
    device = torch.device("cuda", 0)
    stream, side = capture_stream(device), torch.cuda.Stream(device)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    with torch.cuda.stream(stream), pytest.raises(RuntimeError):
        recorded(lambda: torch.ones(MIB, device=device).sum().item(), torch.cuda.graph_pool_handle(), stream)
    repair_generator(device)
    for _ in range(20):
        used = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
        used.record_stream(side)
        del used
        torch.cuda.synchronize()
    assert torch.cuda.memory_reserved(device) <= before + 3 * 64 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(device) <= before + 16 * MIB
    torch.rand(4, device=device)
