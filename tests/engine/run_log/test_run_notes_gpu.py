"""The line at the end of a run on a card: each run in a process of its own, for peaks belong to a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import brim
from brim.record import RunFolder
from brim.record.run_record import read_run

pytestmark = pytest.mark.gpu

PROGRAM = """\
import json, sys
import torch
from torch import nn
from torch.utils.data import TensorDataset
import brim

torch.manual_seed(0)
width = 1024
model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def pairs(n):
    x = torch.randn(n, 256)
    return TensorDataset(x, x.sum(1, keepdim=True) / 16)


trainer = brim.Trainer(
    model, brim.Loader(pairs(200_000), batch_size=8192), eval_data=brim.Loader(pairs(60_000), batch_size=8192),
    loss_fn=nn.MSELoss(), device="cuda", epochs=2, run_dir="run", capture=sys.argv[1],
)
trainer.fit()
print(json.dumps({"reserved": torch.cuda.max_memory_reserved()}))
"""


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_the_forecast_with_its_parts_is_what_the_run_reserved(tmp_path, capture):
    source = str(Path(brim.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, capture], cwd=tmp_path, capture_output=True, text=True,
        env={
            **os.environ, "BRIM_CACHE": str(tmp_path / "cache"), "PYTORCH_ALLOC_CONF": "",
            "PYTORCH_CUDA_ALLOC_CONF": "", "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = [event for event in read_run(RunFolder(tmp_path / "run")).events if "reserved_parts" in event]
    (end,) = events
    assert sum(end["reserved_parts"].values()) == end["reserved"]
    assert end["reserved_parts"]["resident data"] >= 200_000 * 257 * 4
    if capture == "off":
        assert json.loads(done.stdout.splitlines()[-1])["reserved"] == end["reserved"]
    assert abs(end["expected"] - end["reserved"]) <= 0.06 * end["reserved"]
