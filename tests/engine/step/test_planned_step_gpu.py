"""Each run in a process of its own: peaks of memory, and caps on it, belong to a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import brim

pytestmark = pytest.mark.gpu

BATCH = 262_144
# One batch, so that nothing but the slices decides in which order samples are added up. SGD, because Adam divides by
# gradients that are nearly 0.
PROGRAM = """\
import json, sys
import torch
from torch import nn
import brim

settings = json.loads(sys.argv[1])
width, batch = settings["width"], settings["batch"]
if settings["cap"]:
    torch.cuda.set_per_process_memory_fraction(settings["cap"] / torch.cuda.mem_get_info(0)[1], 0)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(256, width), nn.ReLU(), *(nn.Linear(width, width) for _ in range(settings["layers"])), nn.ReLU(),
    nn.Linear(width, 1),
)
x = torch.randn(batch, 256)
y = x.sum(1, keepdim=True) / 16
trainer = brim.Trainer(
    model, [(x, y)], loss_fn=nn.MSELoss(), optimizer=lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    device="cuda", epochs=4, run_dir="run", log_every=1, **settings["trainer"],
)
result = trainer.fit()
torch.save([p.detach().cpu() for p in model.parameters()], "weights.pt")
plan = trainer.plan
print(json.dumps({
    "steps": result.steps,
    "slices": plan and plan.slices,
    "micro_batch": plan and plan.micro_batch,
    "limit": plan and plan.limit,
    "forecast": plan and plan.forecast.reserved,
    "reserved": torch.cuda.max_memory_reserved(),
}))
"""


def train(folder, batch=BATCH, width=1024, layers=1, cap=None, **trainer):
    """What a run says at its end; its run folder and its weights lie in ``folder``."""
    folder.mkdir()
    settings = {"batch": batch, "width": width, "layers": layers, "cap": cap, "trainer": trainer}
    source = str(Path(brim.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(settings)], cwd=folder, capture_output=True, text=True,
        env={
            **os.environ, "BRIM_CACHE": str(folder / "cache"), "PYTORCH_ALLOC_CONF": "", "PYTORCH_CUDA_ALLOC_CONF": "",
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def weights(folder):
    import torch

    return torch.cat([weight.flatten() for weight in torch.load(folder / "weights.pt")])


def test_on_a_small_card_the_batch_is_sliced_and_the_training_the_same(tmp_path):
    sliced, said = train(tmp_path / "sliced", cap=2 << 30, micro_batch="auto")
    assert sliced["steps"] == 4
    assert sliced["slices"] > 1
    assert sliced["limit"] <= 2 << 30
    assert sliced["reserved"] <= 2 << 30
    assert f"{sliced['slices']} micro-batches of" in said
    train(tmp_path / "explicit", micro_batch=16_384)
    expected = weights(tmp_path / "explicit")
    assert (weights(tmp_path / "sliced") - expected).norm() / expected.norm() <= 1e-5
    kept = json.loads((tmp_path / "sliced" / "run" / "plan.json").read_text())
    assert (kept["slices"], kept["micro_batch"]) == (sliced["slices"], sliced["micro_batch"])
    assert not (tmp_path / "explicit" / "run" / "plan.json").exists()


def test_slices_of_a_model_with_many_parameters_fit_too(tmp_path):
    ended, _ = train(tmp_path / "run_of_it", cap=2 << 30, batch=49_152, width=4096, layers=4, micro_batch="auto")
    assert ended["slices"] > 1
    assert ended["reserved"] <= 2 << 30


@pytest.mark.parametrize(("batch", "width", "layers"), [(16_384, 2048, 2), (65_536, 1024, 4)])
def test_the_forecast_is_what_is_reserved(tmp_path, batch, width, layers):
    sizes = {"batch": batch, "width": width, "layers": layers}
    # A captured step would keep as much again for itself, and says so.
    ended, said = train(tmp_path / "whole", **sizes, micro_batch="auto", capture="off")
    assert ended["slices"] == 1
    assert abs(ended["forecast"] - ended["reserved"]) <= 0.06 * ended["reserved"]
    assert "memory forecast: " in said
    assert "peak memory: " in said
    kept = json.loads((tmp_path / "whole" / "run" / "plan.json").read_text())
    assert kept["forecast"]["reserved"] == ended["forecast"]
    assert kept["slices"] == 1


def test_an_explicit_micro_batch_is_not_planned(tmp_path):
    ended, said = train(tmp_path / "explicit", batch=1024, micro_batch=256)
    assert ended["slices"] is None
    assert "memory forecast: " not in said
