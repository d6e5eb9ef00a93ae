"""Forecasts follow from the rules alone: no calibration of this machine, no allocator settings of this shell."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def rules_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
