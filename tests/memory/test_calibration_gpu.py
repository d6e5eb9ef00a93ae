"""In a process of its own: the context of one that has trained before is another."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import brim

pytestmark = pytest.mark.gpu

MIB = 1 << 20
PROGRAM = """\
import json
import torch
from torch import nn
import brim
from brim.memory.calibration import calibrate


def made():
    return brim.forecast(lambda: nn.Linear(512, 512), lambda n: ((torch.empty(n, 512),), {}), batch_size=64)


before = made()
found, file = calibrate()
after = made()
print(json.dumps({
    "context": found.context, "extra": found.extra_reserved, "file": str(file), "driver": after.card.driver_reserve,
    "before": [before.parts["context"], before.reserved], "after": [after.parts["context"], after.reserved],
    "band": after.device_band, "device": after.device,
}))
"""


def test_a_calibration_measures_the_context_and_later_forecasts_use_it(tmp_path):
    if torch.cuda.is_initialized():
        pytest.skip("this process has a context of its own on the card by now, which the measurement would count")
    source = str(Path(brim.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True,
        env={
            **os.environ, "BRIM_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert 500 * MIB <= said["context"] <= 1500 * MIB
    assert 0 <= said["extra"] <= 200 * MIB
    assert Path(said["file"]).is_relative_to(tmp_path / "cache")
    assert json.loads(Path(said["file"]).read_text())["context"] == said["context"]
    assert said["after"] == [said["context"] + said["driver"], said["before"][1] + said["extra"]]
    assert said["band"] == [said["device"], said["device"]]  # measured, so nothing is left open
