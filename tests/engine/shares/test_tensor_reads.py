import threading
from contextlib import nullcontext

import pytest
import torch

from brim.engine.shares.tensor_reads import READS, watched_reads


class Recorder:
    def __init__(self):
        self.is_sampling, self.waits, self.wants = True, [], True

    def wait_begins(self):
        return object() if self.wants else None

    def wait_ends(self, begin, has_waited):
        self.waits.append(has_waited)


VALUE = torch.tensor([2.0])
CALLS = {
    "item": lambda: VALUE.item(), "tolist": lambda: VALUE.tolist(), "cpu": lambda: VALUE.cpu(),
    "nonzero": lambda: VALUE.nonzero(), "__bool__": lambda: bool(VALUE), "__float__": lambda: float(VALUE),
    "__int__": lambda: int(VALUE),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_read_is_told_and_gives_what_it_would(name):
    recorder, plain = Recorder(), CALLS[name]()
    with watched_reads(recorder, "cpu"):
        read = CALLS[name]()
    assert recorder.waits == [True]
    assert torch.equal(read, plain) if isinstance(plain, torch.Tensor) else read == plain


def test_what_stays_on_the_device_or_is_of_another_waits_for_nothing():
    recorder = Recorder()
    with watched_reads(recorder, "meta"):
        torch.empty(2, device="meta").to(torch.float64)
        VALUE.item()
    assert recorder.waits == [False]


def test_outside_of_samples_nothing_is_told():
    recorder = Recorder()
    recorder.is_sampling = False
    with watched_reads(recorder, "cpu"):
        VALUE.item()
    recorder.is_sampling, recorder.wants = True, False
    with watched_reads(recorder, "cpu"):
        VALUE.item()
    assert recorder.waits == []


def test_reads_of_other_threads_are_theirs():
    recorder = Recorder()
    with watched_reads(recorder, "cpu"):
        thread = threading.Thread(target=VALUE.item)
        thread.start()
        thread.join()
    assert recorder.waits == []


def test_a_read_that_fails_is_told_and_fails():
    recorder = Recorder()
    with watched_reads(recorder, "cpu"), pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.zeros(2).item()
    assert recorder.waits == [True]


def test_afterwards_the_methods_are_torchs_own_again():
    before = {name: getattr(torch.Tensor, name) for name in READS}
    synchronize = torch.cuda.synchronize
    with pytest.raises(KeyError), watched_reads(Recorder(), "cpu"):
        assert torch.Tensor.item is not before["item"] and torch.Tensor.item.__doc__ == before["item"].__doc__
        raise KeyError
    assert {name: getattr(torch.Tensor, name) for name in READS} == before
    assert torch.cuda.synchronize is synchronize


@pytest.mark.slow
def test_compiled_code_is_compiled_as_without_it_and_not_again():
    from torch._dynamo.testing import CompileCounter  # with all of the compiler

    def read(x):
        y = x.to(torch.float64).cpu() * 2
        return y * 3 if y.sum() > 0 else y - y.sum().item()

    counts = {}
    for is_watched in (False, True):
        torch._dynamo.reset()
        counter, recorder = CompileCounter(), Recorder()
        compiled = torch.compile(read, backend=counter)
        with watched_reads(recorder, "cpu") if is_watched else nullcontext():
            found = [compiled(VALUE), compiled(-VALUE)]
            recorder.is_sampling = False
            found += [compiled(VALUE)]
        found += [compiled(VALUE), compiled(-VALUE)]
        counts[is_watched] = (counter.frame_count, counter.op_count, found)
    assert counts[True] == counts[False]
