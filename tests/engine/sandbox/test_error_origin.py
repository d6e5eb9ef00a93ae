"""Whose error it is: by its type and where it arose, not by what it says."""

import torch
import torch.distributed as dist
from torch import nn

from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.sandbox.error_origin import is_of_exchange, is_raised_in_python
from brim.errors import RanksLost


def caught(function):
    try:
        function()
    except Exception as error:
        return error


def says(said, kind=RuntimeError):
    def fail():
        raise kind(said)

    return caught(fail)


def test_a_statement_of_somebodys_code_is_told_from_native_code():
    assert is_raised_in_python(says("no"))
    assert not is_raised_in_python(caught(lambda: torch.ones(2) @ torch.ones(3)))
    assert not is_raised_in_python(caught(lambda: nn.functional.cross_entropy(torch.ones(2, 2), torch.ones(3).long())))
    assert not is_raised_in_python(RuntimeError("never raised"))


def test_an_error_that_is_raised_again_is_its_first_raisers():
    def again():
        try:
            torch.ones(2) @ torch.ones(3)
        except RuntimeError as error:
            raise error

    assert not is_raised_in_python(caught(again))


def test_users_errors_are_no_lost_ranks_whatever_they_say():
    for said in ("cannot process label 7", "connection to the data base lost", "gloo and nccl", "process group"):
        for kind in (RuntimeError, ValueError, OSError, ConnectionError):
            assert not is_of_exchange(says(said, kind))
    assert not is_of_exchange(caught(lambda: torch.ones(2) @ torch.ones(3)))


def test_what_arises_in_an_exchange_is():
    assert is_of_exchange(says("x", dist.DistBackendError))
    assert is_of_exchange(says("x", RanksLost))
    assert is_of_exchange(caught(lambda: dist.all_reduce(torch.ones(1))))  # there is no group


def test_memory_that_users_code_talks_about_has_not_run_out():
    assert not is_out_of_memory(says("sample 7 failed before with 'CUDA out of memory', see the log"))
    assert not is_out_of_memory(says("the service said: CUDA error: out of memory"))
    assert is_out_of_memory(says("CUDA out of memory. Tried to allocate 2.00 GiB"))  # as torch says it
    assert is_out_of_memory(says("no", torch.OutOfMemoryError))
    assert is_out_of_memory(says("", MemoryError))


def test_memory_that_a_worker_of_torchs_ran_out_of_has():
    from torch._utils import ExceptionWrapper

    def fail():
        try:
            raise RuntimeError("CUDA out of memory")
        except RuntimeError:
            wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
        wrapped.reraise()

    assert is_out_of_memory(caught(fail))
