"""What the tests of capturing share: graphs that compute on the CPU, and a card that is not there."""

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from brim.engine.captured import captured_step, graph_cache, trial
from brim.engine.captured.host import host_watch
from brim.engine.captured.proof import step_state

sys.path.insert(0, str(Path(__file__).parent))  # for graph_on_cpu


@pytest.fixture
def mutations(soaking):
    """Graphs that are wrong on purpose."""
    return importlib.import_module("capture_mutations")


@pytest.fixture
def card(monkeypatch):
    """Memory for copies, as on a card with room."""
    monkeypatch.setattr(step_state, "usable_memory", lambda device: 1 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)


@pytest.fixture
def no_card(card, monkeypatch):
    """Whatever a trial asks of a card is answered, so that it can be made on the CPU."""
    monkeypatch.setattr(trial, "usable_memory", lambda device: 1 << 30)
    monkeypatch.setattr(trial, "TIMED_SECONDS", 1e-9)
    # The generator of the device is the host's here, and dropout may draw from it.
    monkeypatch.setattr(host_watch, "host_marks", tuple)
    for name in ("synchronize", "empty_cache", "set_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    for name in ("memory_reserved", "max_memory_allocated", "get_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: 0)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False)


@pytest.fixture
def on_the_cpu(no_card, monkeypatch):
    """Whole trials without a card: faster is not asked for."""
    monkeypatch.setattr(captured_step, "check_step", lambda *_: None)
    monkeypatch.setattr(captured_step, "capture_stream", lambda device: None)
    monkeypatch.setattr(captured_step, "repair_generator", lambda device: None)
    monkeypatch.setattr(graph_cache, "release_memory", lambda device: None)
    monkeypatch.setattr(trial, "HOST_SHARE", 0.0)
    monkeypatch.setattr(trial, "LEAST_GAIN", 0.0)
