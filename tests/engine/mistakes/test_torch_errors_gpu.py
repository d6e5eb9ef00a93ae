"""An index out of range stops the GPU for the whole process, so each case has a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import brim

pytestmark = pytest.mark.gpu

SCRIPT = """
import torch, brim
from torch import nn

X, labels = torch.randn(64, 4), torch.arange(64) % 3
model, data, loss_fn = {case}
try:
    data = brim.Loader(data, batch_size=16)
    brim.Trainer(model, data, loss_fn=loss_fn, device="cuda", use_multi_gpu=False, epochs=3, {settings}).fit()
except brim.BrimError as error:
    print(type(error).__name__, error)
"""
CASES = {
    "labels": "nn.Linear(4, 3), (X, labels + 1), nn.CrossEntropyLoss()",
    "one label late": "nn.Linear(4, 3), (X, labels.where(torch.arange(64) != 40, 7)), nn.CrossEntropyLoss()",
    "embedding": "nn.Embedding(2, 1), (labels, X[:, :1]), nn.MSELoss()",
}


@pytest.mark.parametrize("settings", ["", "capture='off'"])
@pytest.mark.parametrize("case", CASES)
def test_an_index_out_of_range_is_one_sentence(case, settings, tmp_path):
    script = SCRIPT.format(case=CASES[case], settings=settings)
    path = os.pathsep.join([str(Path(brim.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert "ModelError an index on the GPU is out of range" in ended.stdout, ended.stderr[-2000:]
    assert "start it anew" in ended.stdout
    assert ended.returncode == 0, ended.stderr[-2000:]  # no page of C++ at the end
