"""Threads that compute side by side: as the thread that waits for them would, and nothing stays behind."""

import gc
import threading
import traceback
import weakref

import pytest
import torch

from brim.engine.data_parallel.device_threads import compute_side_by_side
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.errors import ConfigError

CPU = torch.device("cpu")
DEVICES = [CPU] * 3


def run(*tasks):
    return compute_side_by_side(tasks, DEVICES[: len(tasks)])


def ran_out():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_all_compute_at_the_same_time_and_results_keep_their_order():
    meeting = threading.Barrier(3)

    def task(number):
        meeting.wait()
        return number, threading.get_ident()

    results = run(*(lambda n=n: task(n) for n in range(3)))
    assert [number for number, _ in results] == [0, 1, 2]
    assert len({thread for _, thread in results}) == 3


def test_threads_compute_in_the_modes_of_their_caller():
    def modes():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), product.dtype

    assert run(modes, modes, modes) == [(True, False, torch.float32)] * 3
    with torch.no_grad():
        assert run(modes, modes, modes) == [(False, False, torch.float32)] * 3
    with torch.inference_mode():
        assert run(modes, modes) == [(False, True, torch.float32)] * 2
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            assert run(modes, modes, modes) == [(True, False, dtype)] * 3
            assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_comes_out_as_it_is_once_all_are_done(failing):
    done = []

    def fails():
        raise KeyError("mine")

    def slow():
        threading.Event().wait(0.05)
        done.append(1)

    tasks = [slow, slow, slow]
    tasks[failing] = fails
    before = threading.active_count()
    with pytest.raises(KeyError, match="mine") as caught:
        run(*tasks)
    assert done == [1, 1]
    assert threading.active_count() == before
    assert "fails" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_running_out_of_memory_is_recognised_and_keeps_nothing(failing):
    made = []

    def task(number):
        tensor = torch.ones(1000, requires_grad=True) * 2
        made.append(weakref.ref(tensor))
        if number == failing:
            ran_out()
        return tensor.sum()

    def attempt():
        try:
            run(*(lambda n=n: task(n) for n in range(3)))
        except Exception as error:
            return is_out_of_memory(error)

    gc.collect()
    gc.disable()  # cycles would be found only later
    try:
        assert attempt()
        assert [tensor() for tensor in made] == [None] * 3
    finally:
        gc.enable()


def test_an_error_that_smaller_slices_would_not_cure_comes_first():
    def wrong():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run(ran_out, ran_out, wrong)


def test_a_tensor_of_another_gpu_is_explained():
    def elsewhere():
        raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices")

    with pytest.raises(ConfigError, match=r"does not own .* buffer.*use_multi_gpu=False.*at least two devices"):
        run(lambda: 1, elsewhere)
    with pytest.raises(RuntimeError, match=r"^Expected all tensors"):  # as it would be on one GPU
        run(elsewhere, elsewhere)


def test_a_thread_that_cannot_be_started_leaves_none_running(monkeypatch):
    start, started = threading.Thread.start, []

    def limited(self):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="can't start"):
        run(int, int, int)
    assert not started[0].is_alive()
