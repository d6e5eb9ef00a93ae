"""The context in which fake CPU tensors take the ways of CUDA, and what is left of it afterwards."""

import copy
import logging
import threading
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from brim.hardware.cards import H200
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import Recorder


def inside():
    recorder = Recorder(H200, (2, 11))
    return as_cuda(H200, (2, 11), recorder)


def kernels() -> set[str]:
    names = torch._C._dispatch_get_all_op_names()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return {f"{name} {key}" for name in names for key in ("AutocastCPU", "AutogradCPU") if has(name, key)}


def test_everything_inside_is_fake() -> None:
    with inside():
        assert isinstance(torch.zeros(2), FakeTensor)
        assert isinstance(nn.Linear(2, 2).weight, FakeTensor)
    assert type(torch.zeros(2)) is torch.Tensor


def test_the_dispatcher_is_as_before_even_after_an_error() -> None:
    before = kernels()
    with pytest.raises(KeyError), inside():
        assert kernels() != before
        raise KeyError
    assert kernels() == before


def test_patches_are_undone() -> None:
    def patched():
        return (
            torch.amp.autocast_mode.autocast.__init__,
            torch.utils.swap_tensors,
            torch._subclasses.FakeTensor,
            getattr(FakeTensorMode, "__deepcopy__", None),
            torch.Tensor.__deepcopy__,
            logging.getLogger("torch._subclasses.fake_tensor").level,
        )

    before = patched()
    with inside():
        assert patched() != before
    assert patched() == before


def test_warnings_are_heard_again() -> None:
    with inside():
        warnings.warn("not heard", stacklevel=1)
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", stacklevel=1)


def test_copies_are_fake_too() -> None:
    with inside():
        layer = nn.Linear(2, 2)
        other = copy.deepcopy(layer)
        assert isinstance(other.weight, FakeTensor)
        assert other.weight is not layer.weight
        assert other(layer(torch.zeros(3, 2))).shape == (3, 2)


def test_copies_of_layers_that_count_and_of_the_users_own_are_made() -> None:
    own = nn.BatchNorm1d(2)
    own.num_batches_tracked += 3
    with inside():
        counting = copy.deepcopy(nn.BatchNorm1d(2))
        assert isinstance(counting.num_batches_tracked, FakeTensor)
        assert counting(torch.zeros(3, 2)).shape == (3, 2)
        others = copy.deepcopy(own)
    assert others.num_batches_tracked == 3
    assert others.num_batches_tracked is not own.num_batches_tracked


def test_modules_are_converted_in_place() -> None:
    with inside():
        layer = nn.LSTM(2, 2)
        assert layer.half().weight_ih_l0.dtype == torch.float16
        assert layer.to(torch.bfloat16).cuda().weight_hh_l0.dtype == torch.bfloat16


def test_autocast_of_cuda_is_on() -> None:
    with inside():
        x = torch.zeros(2, 2)
        for autocast in (torch.autocast("cuda", torch.bfloat16), torch.amp.autocast("cuda", dtype=torch.bfloat16)):
            with autocast:
                assert (x @ x).dtype == torch.bfloat16
        with torch.autocast(device_type="cuda", enabled=False):
            assert (x @ x).dtype == torch.float32


def test_one_thread_at_a_time() -> None:
    order: list[str] = []
    started = threading.Event()

    def other() -> None:
        started.set()
        with inside():
            order.append("other")

    thread = threading.Thread(target=other)
    with inside():
        thread.start()
        started.wait()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_one_inside_the_other() -> None:
    with inside():
        with inside():
            assert isinstance(torch.zeros(1), FakeTensor)
        assert torch.nn.functional.dropout(torch.zeros(2), 0.5).shape == (2,)
