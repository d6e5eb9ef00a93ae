"""These tests need Lightning; one thread computes in both loops, so that sums have the same bits."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("lightning", reason="lightning is not installed")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
