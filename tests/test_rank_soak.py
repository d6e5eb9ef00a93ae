"""A short version of ``benchmarks/rank_soak.py``, and proof that it notices what it is there to notice."""

import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks ranks and finds their sockets in /proc")


@pytest.mark.slow
def test_a_trial_of_each_strategy_ends_as_promised(tmp_path):
    result = tmp_path / "rank-soak.json"
    command = [sys.executable, BENCHMARKS / "rank_soak.py", "--trials", "2", "--json", result]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert found["trials"] == 2 and found["faults"] >= 2 and found["failures"] == []
    assert found["stages"]["ddp forward"]["trials"] == found["stages"]["fsdp forward"]["trials"] == 1


def test_what_is_not_as_it_would_have_been_is_named(soaking):
    from rank_soaking.judgement import what_differs
    from rank_soaking.recipe import random_recipe
    from rank_soaking.training import Trained

    recipe = random_recipe(random.Random(0), "ddp", "reduce")
    alone = Trained({"weight": torch.ones(4)}, 20, 3, [3.0, 2.0, 1.0], [0.5], {"loss": 0.5})
    half = dataclasses.replace(alone, seen=10)
    assert what_differs(recipe, [half, half], alone) is None
    wrong = {
        "the weights of rank 1": {"weights": {"weight": torch.ones(4) * 1.001}},
        "rank 1 has other bits": {"weights": {"weight": torch.ones(4) + 2e-7}},
        "rank 1 made 2 steps": {"steps": 2},
        "the losses of rank 1": {"losses": [3.0, 2.0, 1.01]},
        "the metrics of rank 1": {"evaluations": [0.5, 0.5]},
        "counted 24 samples": {"seen": 14},
    }
    for said, change in wrong.items():
        assert said in what_differs(recipe, [half, dataclasses.replace(half, **change)], alone)


def test_a_seed_is_the_same_trial_in_any_process(soaking):
    from rank_soaking.recipe import random_recipe

    recipes = [random_recipe(random.Random(f"0 {number}"), "fsdp", "backward") for number in range(50)]
    assert recipes == [random_recipe(random.Random(f"0 {number}"), "fsdp", "backward") for number in range(50)]
    assert len({recipe.model for recipe in recipes}) == 4 and {recipe.world for recipe in recipes} == {2, 3, 4}
