"""A short version of ``make soak``, and proof that it notices what it is there to notice."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.mark.slow
def test_some_trials_of_each_part_end_as_promised(tmp_path):
    result = tmp_path / "soak.json"
    command = [sys.executable, BENCHMARKS / "soak.py", "--trials", "2", "--json", result]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads(result.read_text())
    assert {name: parts[name]["trials"] for name in ("kills", "faults", "configurations")} == {
        "kills": 2, "faults": 2, "configurations": 2,
    }  # fmt: skip


def test_one_bit_of_difference_is_noticed(tmp_path, soaking):
    from soaking.outcome import WentWrong, same_bits, same_up_to_rounding

    weights = torch.randn(4, 4)
    other = weights.clone()
    other.view(torch.int32)[2, 2] ^= 1
    for name, tensor in (("straight", weights), ("tried", other), ("far", weights * 1.001)):
        (tmp_path / name).mkdir()
        save_file({"weight": tensor}, tmp_path / name / "model.safetensors")
    with pytest.raises(WentWrong, match="the trained model differs"):
        same_bits(tmp_path / "straight", tmp_path / "tried")
    same_up_to_rounding(tmp_path / "straight", tmp_path / "tried")
    with pytest.raises(WentWrong, match="more than"):
        same_up_to_rounding(tmp_path / "straight", tmp_path / "far")


HANGING = """
import sys, time
sys.path.insert(0, sys.argv[1])
from soaking.child import alive_in, fork
from soaking.outcome import WentWrong

child = fork(lambda: print("hangs now", flush=True) or time.sleep(10_000) or 0)
while "hangs now" not in child.words():
    assert child.join(0.02) is None, child.words()
try:
    child.wait(limit=1)
except WentWrong as wrong:
    print(wrong)
assert alive_in(child.pid) == []
child.close()
"""


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_and_says_where():
    # A process of its own: what libraries do to signals in the one of the tests is not its matter.
    done = subprocess.run([sys.executable, "-c", HANGING, BENCHMARKS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"does not end within 1 s[\s\S]*<lambda>", done.stdout), done.stdout


def test_a_seed_is_the_same_training_in_any_process(soaking):
    from soaking.recipe import random_recipe

    recipes = [random_recipe(random.Random(f"0 kills:{number}")) for number in range(50)]
    assert recipes == [random_recipe(random.Random(f"0 kills:{number}")) for number in range(50)]
    assert len({recipe.feed for recipe in recipes}) > 5
