"""Capture trap 9: pinned memory and events in other threads break a capture that watches the whole process."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.gpu


def pin():
    torch.empty(1 << 16).pin_memory()


def query_events():
    """What a watchdog does: record on a stream of its own, and ask whether it is over."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        torch.ones(16, device="cuda").add_(1)
        event.record()
    while not event.query():
        pass


def allocate():
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.empty(1 << 22, device="cuda")  # new memory for each of the streams that torch has


@pytest.mark.parametrize("work", [pin, query_events, allocate])
def test_other_threads_may_use_the_device_meanwhile(twins, meanwhile, work):
    eager = twins.train(twins.mlp, twins.rows(), "off")
    with meanwhile(work) as done:
        captured = twins.train(twins.mlp, twins.rows(), "require")
    assert done
    assert captured.is_accounted_for
    assert captured.equals(eager)


def test_nvml_may_be_asked_meanwhile(twins, meanwhile, sample_nvml):
    with meanwhile(sample_nvml) as done:
        captured = twins.train(twins.mlp, twins.rows(), "require")
    assert done and captured.is_accounted_for


def test_the_thread_that_pins_batches_goes_on(twins):
    def loader():
        return DataLoader(TensorDataset(*twins.rows()), 32, num_workers=2, pin_memory=True, prefetch_factor=4)

    eager, captured = twins(twins.mlp, loader)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-5
