"""The largest batch under a cap against the largest that trained on an H200 under that cap."""

import json
import sys
from pathlib import Path

import pytest

from brim.memory import largest_batch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
QUICK = [("two_tables", "fp32"), ("gpt2", "bf16"), ("lstm", "bf16"), ("lstm", "fp32"), ("gru_deep", "bf16")]


def measured() -> dict[tuple[str, str], dict]:
    rows = [json.loads(line) for line in (BENCHMARKS / "results" / "memory_caps.jsonl").read_text().splitlines()[1:]]
    return {(row["job"], row["precision"]): row for row in rows}


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("job", "precision"), QUICK)
def test_it_trains_and_leaves_little_unused(job: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from memory_zoo import JOBS, OPTIMIZERS

    row, zoo = measured()[job, precision], JOBS[job]
    found = largest_batch(
        zoo.model, zoo.batch, zoo.loss, OPTIMIZERS[row["optimizer"]], precision=precision, card="NVIDIA H200",
        runtime="2.11", memory=f"{row['cap_gib']}GiB",
    )  # fmt: skip
    assert min(0.95 * row["largest"], row["largest"] - 1) <= found < row["too_large"]
