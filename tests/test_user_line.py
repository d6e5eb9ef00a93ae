"""Whose a line of source is."""

from pathlib import Path

import pytest
import torch

import brim
from brim.user_line import is_the_users, line_of_the_user

PACKAGES = Path(torch.__file__).parent.parent


@pytest.mark.parametrize("package", ["torchvision", "torchmetrics", "torch_geometric", "transformers"])
def test_libraries_beside_torch_are_the_users(package: str) -> None:
    assert is_the_users(str(PACKAGES / package / "models" / "resnet.py"))


@pytest.mark.parametrize(
    "file",
    [torch.__file__, str(PACKAGES / "torch" / "nn" / "modules" / "linear.py"), "<string>"],
)
def test_torch_is_not_the_users(file: str) -> None:
    assert not is_the_users(file)


def test_the_forecast_is_not_the_users() -> None:
    assert not is_the_users(str(Path(brim.__file__).parent / "memory" / "trace.py"))


def test_the_line_that_runs_is_found() -> None:
    assert line_of_the_user().startswith(f"{__file__}:")
