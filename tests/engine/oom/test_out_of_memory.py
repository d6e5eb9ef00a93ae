import gc
import weakref

import pytest
import torch
from torch import nn

from brim.engine.oom.out_of_memory import PHRASES, held_by_part, is_out_of_memory, shortage_of

SAID = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.10 GiB."


def caught(function):
    try:
        function()
    except Exception as error:
        return error


def wrapped(inner):
    def fail():
        try:
            raise inner
        except Exception as error:
            raise ValueError("the layer could not be computed") from error

    return caught(fail)


@pytest.mark.parametrize("phrase", PHRASES)
def test_what_torch_and_its_libraries_say_is_running_out_of_memory(phrase):
    assert is_out_of_memory(RuntimeError(f"{phrase} when calling `create(handle)`"))
    assert is_out_of_memory(wrapped(RuntimeError(phrase)))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no"), torch.cuda.OutOfMemoryError("no"), MemoryError()])
def test_so_are_the_types_that_say_it_themselves(error):
    assert is_out_of_memory(error)
    assert is_out_of_memory(wrapped(wrapped(error)))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("the warehouse is out of memory"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDNN_STATUS_NOT_SUPPORTED"),
        ValueError("CUDA out of memory"),
        KeyboardInterrupt("CUDA out of memory"),
        IndexError(),
    ],
    ids=repr,
)
def test_anything_else_is_not(error):
    assert not is_out_of_memory(error)


def test_an_error_on_the_way_out_of_another_is_an_error_of_its_own():
    def fail():
        try:
            raise torch.OutOfMemoryError(SAID)
        except torch.OutOfMemoryError:
            raise KeyError("typo in the handler")  # noqa: B904

    assert not is_out_of_memory(caught(fail))


def test_causes_in_a_circle_come_to_an_end():
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a
    assert not is_out_of_memory(a)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Tried to allocate 1.50 GiB.", 3 << 29),
        ("Tried to allocate 20.00 MiB (GPU 0)", 20 << 20),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 512 bytes.", 512),
        ("CUBLAS_STATUS_ALLOC_FAILED", None),
    ],
)
def test_the_bytes_asked_for_are_read_from_the_message(said, asked):
    assert shortage_of(RuntimeError(said), "forward pass", None, None).asked == asked


def test_the_bytes_asked_for_are_read_from_the_cause_too():
    assert shortage_of(wrapped(torch.OutOfMemoryError(SAID)), "forward pass", None, None).asked == 3 << 29


class Greedy(nn.Module):
    def forward(self, x):
        kept = x * 2
        self.seen = weakref.ref(kept)
        raise torch.OutOfMemoryError(SAID)


def test_a_shortage_names_stage_module_line_and_bytes():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), Greedy()))
    sentence = shortage_of(caught(lambda: model(torch.ones(1, 2))), "forward pass", model, None).sentence()
    assert sentence.startswith("out of memory in the forward pass, in 1.1 at test_out_of_memory.py:")
    assert "(1.50 GiB more were asked for)" in sentence


def test_the_model_itself_goes_by_its_class():
    model = Greedy()
    shortage = shortage_of(caught(lambda: model(torch.ones(1, 2))), "forward pass", model, None)
    assert shortage.where.startswith("Greedy at ")


def test_nothing_in_a_shortage_keeps_the_failed_computation_alive():
    model = Greedy()
    error = caught(lambda: model(torch.ones(1, 2)))
    shortage = shortage_of(error, "forward pass", model, None)
    assert model.seen() is not None
    del error
    gc.collect()
    assert model.seen() is None
    assert shortage.asked == 3 << 29


def test_what_is_held_is_counted_by_part():
    model = nn.Sequential(nn.Linear(512, 512, bias=False), nn.BatchNorm1d(512, affine=False))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 512)).sum().backward()
    optimizer.step()
    size = 512 * 512 * 4
    assert held_by_part(model, optimizer) == {
        "parameters": size, "gradients": size, "buffers": 2 * 512 * 4 + 8, "optimizer": 2 * size + 4
    }  # fmt: skip
    told = shortage_of(RuntimeError("x"), "backward pass", model, optimizer).sentence()
    assert told == "out of memory in the backward pass; held: parameters 1.0 MiB, gradients 1.0 MiB, optimizer 2.0 MiB"
