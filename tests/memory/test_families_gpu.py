"""Families of models against a card: each case in a process of its own, as `benchmarks/memory_truth.py` has it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import brim
from brim.memory import forecast

pytestmark = pytest.mark.gpu

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = [
    "lstm_cells/1024/adamw/bf16", "lstm_cells/128/adamw/fp32", "gru_cells/1024/adamw/bf16",
    "sparse_tables/4096/sparse_adam/fp32", "sparse_tables/65536/sgd/fp32", "gpt2_lora_dropout/24/adamw/bf16",
    "p_mixtral/2/adamw/fp32", "p_patchtst/16/adamw/fp32",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_allocated_is_what_was_forecast(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from memory_zoo import JOBS, NEW, OPTIMIZERS

    case = next(case for case in NEW if case.name == name)
    source = str(Path(brim.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "memory_truth.py"), "--only", f"new:{name}", "--out", "truth.jsonl"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "truth.jsonl").read_text().splitlines()[1])
    zoo = JOBS[case.job]
    made = forecast(
        zoo.model, zoo.batch, zoo.loss, OPTIMIZERS[case.optimizer], batch_size=case.batch_size,
        precision=case.precision, card=torch.cuda.get_device_name(), runtime=torch.__version__,
    )  # fmt: skip
    assert abs(made.allocated / row["allocated"] - 1) <= 0.02
