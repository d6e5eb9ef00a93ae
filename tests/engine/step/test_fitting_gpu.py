"""Runs under a cap, each in a process of its own: the plain training, at the least cost in speed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import brim

pytestmark = pytest.mark.gpu

PROGRAM = """\
import json, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel
import brim

settings = json.loads(sys.argv[1])
if settings["cap"]:
    torch.cuda.set_per_process_memory_fraction(settings["cap"] / torch.cuda.mem_get_info(0)[1], 0)
torch.manual_seed(0)
none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
model = GPT2LMHeadModel(GPT2Config(vocab_size=20000, n_positions=128, n_embd=256, n_layer=6, n_head=4, **none))
words = torch.randint(0, 20000, (64, 128))
trainer = brim.Trainer(
    model, [{"input_ids": words, "labels": words}] * 3, optimizer=lambda p: torch.optim.SGD(p, lr=0.01),
    device="cuda", run_dir="run", capture="off", **settings["trainer"],
)
trainer.fit()
plan = trainer.plan
torch.save([p.detach().cpu() for p in model.parameters()], "weights.pt")
print(json.dumps({
    "cost": plan.cost, "slices": plan.slices, "logits": plan.logits, "forecast": plan.forecast.reserved,
    "blocks": len(plan.checkpointing or ()), "reserved": torch.cuda.max_memory_reserved(), "limit": plan.limit,
}))
"""


def run(folder, cap, **trainer):
    folder.mkdir()
    settings = json.dumps({"cap": cap, "trainer": trainer})
    path = os.pathsep.join([str(Path(brim.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, settings], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("gib", [1.2, 0.8])
def test_under_a_cap_the_training_is_that_of_the_whole_batch(tmp_path, gib):
    import torch

    whole, _ = run(tmp_path / "whole", 0)
    fitted, said = run(tmp_path / "fitted", int(gib * 2**30), fit="auto")
    assert whole["slices"] == 1
    assert fitted["cost"]
    assert fitted["reserved"] <= gib * 2**30
    assert "out of memory" not in said  # the forecast chose what fits
    weights = [torch.load(tmp_path / name / "weights.pt") for name in ("whole", "fitted")]
    for own, other in zip(*weights, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-4)
