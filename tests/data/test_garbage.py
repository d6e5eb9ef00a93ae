import gc
import os

import pytest
import torch
from torch.utils.data import DataLoader

from brim.data.feed import ReadyBatches
from brim.data.garbage import freeze_inherited, gc_paused


@pytest.fixture
def collecting():
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def test_nothing_is_collected_in_there_and_everything_is_as_before_afterwards(collecting):
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(OSError), gc_paused():
        raise OSError
    assert gc.isenabled()


def test_a_collector_that_the_user_has_switched_off_stays_off(collecting):
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


class Told:
    """Writes into a pipe when it is collected."""

    def __init__(self, pipe):
        self.pipe, self.itself = pipe, self

    def __del__(self):
        os.write(self.pipe, b"collected")


def found_dead_in_a_fork(leaves):
    reading, writing = os.pipe()
    with gc_paused():
        Told(writing)
        child = os.fork()
        if child == 0:
            try:
                if leaves:
                    freeze_inherited()
                gc.enable()
                gc.collect()
            finally:
                os._exit(0)
    os.waitpid(child, 0)
    os.write(writing, b".")  # or reading would wait
    found = os.read(reading, 100)
    gc.collect()
    os.close(reading), os.close(writing)
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_what_was_dead_before_a_fork_is_not_collected_after_it():
    assert found_dead_in_a_fork(leaves=False) == b"collected."  # what would happen
    assert found_dead_in_a_fork(leaves=True) == b"."


class Collects(torch.utils.data.Dataset):
    """Whose every sample leaves garbage and collects all that a worker may."""

    def __init__(self, pipe):
        self.pipe = pipe

    def __len__(self):
        return 2

    def __getitem__(self, index):
        Told(self.pipe)
        is_on = gc.isenabled()
        gc.collect()
        return torch.tensor(is_on)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_workers_of_a_users_loader_collect_their_own_garbage_and_not_the_parents(collecting):
    reading, writing = os.pipe()
    own_reading, own_writing = os.pipe()
    loader = DataLoader(Collects(own_writing), num_workers=1, multiprocessing_context="fork")
    assert all(batch.item() for batch in ReadyBatches(loader).in_order())
    assert os.read(own_reading, 100) == b"collected" * 2
    gc.disable()  # the fixture brings it back
    Told(writing)
    assert not any(batch.item() for batch in ReadyBatches(loader).in_order())
    os.write(writing, b".")
    assert os.read(reading, 100) == b"." and os.read(own_reading, 100) == b"collected" * 2
    gc.collect()
    for end in (reading, writing, own_reading, own_writing):
        os.close(end)
