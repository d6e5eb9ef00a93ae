"""What all tests share: GPU tests say why they are skipped, and property tests stay short on a shared machine."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("brim", max_examples=50, deadline=None, database=None)
hypothesis.settings.load_profile("brim")


@pytest.fixture(autouse=True, scope="session")
def nothing_remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured in tests is not remembered for the user, nor the other way round."""
    before = os.environ.get("BRIM_CACHE")
    os.environ["BRIM_CACHE"] = str(tmp_path_factory.mktemp("brim-cache"))
    yield
    if before is None:
        del os.environ["BRIM_CACHE"]
    else:
        os.environ["BRIM_CACHE"] = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
