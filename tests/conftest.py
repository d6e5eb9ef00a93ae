"""What all tests share: GPU tests say why they are skipped, and property tests stay short on a shared machine."""

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("brim", max_examples=50, deadline=None, database=None)
hypothesis.settings.load_profile("brim")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
