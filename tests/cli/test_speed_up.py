"""``brim plan --gpus 1,2,4,8``."""

import json
import os
import subprocess
import sys

import pytest

FILE = """\
import torch
from torch import nn


def job():
    layers = lambda: nn.Sequential(*(nn.Linear(256, 256) for _ in range(3)))
    return {"model": layers, "batch": lambda n: ((torch.randn(n, 256),), {}), "batch_size": 4096}


def unlikely():
    return {**job(), "batch_size": 2**27, "sliceable": False}
"""
CARD = ["--card", "NVIDIA H200"]
SEVERAL = ["--gpus", "1,2,4,8"]


@pytest.fixture(autouse=True)
def in_a_folder_with_a_file(tmp_path, monkeypatch):
    (tmp_path / "described.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    sys.modules.pop("described", None)


def cells(out):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]


def test_the_table_has_a_row_for_each_number_and_way(plan):
    code, out, err = plan("described:job", *SEVERAL, *CARD)
    assert (code, err) == (0, "")
    rows = cells(out)
    assert [row[:2] for row in rows] == [
        ["1", "alone"], *([gpus, way] for gpus in ("2", "4", "8") for way in ("DP", "DDP", "FSDP2")),
    ]  # fmt: skip
    assert rows[0][5:] == ["1.00 x", "100 %", "", "yes"]
    assert [row[7] for row in rows if row[1] == "DP"] == ["1.8-1.9 x", "3.2-3.6 x", "5.5-6.5 x"]
    assert "NVIDIA H200, batch 4,096, 32" in out
    for part in ("rough forecast", "link: nvlink4", "assumed, not measured", "buckets of 8 MiB", "FSDP2: as torch"):
        assert part in out


@pytest.mark.slow
def test_nothing_is_wider_than_100_columns(plan):
    out = plan("described:unlikely", *SEVERAL, *CARD, "--step-ms", "123456")[1]
    assert max(len(line) for line in out.splitlines()) <= 100
    assert cells(out)[0][8] == "no"


def test_json_is_all_there_is_on_stdout(plan):
    code, out, err = plan("described:job", *SEVERAL, *CARD, "--json", "--link", "pcie4", "--step-ms", "50")
    assert (code, err, out.count("\n")) == (0, "", 1)
    made = json.loads(out)
    assert (made["source"], made["link"]["name"], made["rows"][0]["seconds"]) == ("given", "pcie4", pytest.approx(0.05))
    assert [row["gpus"] for row in made["rows"]] == [1, 2, 2, 2, 4, 4, 4, 8, 8, 8]
    assert all(row["speed_up"] <= row["gpus"] for row in made["rows"])


def test_a_single_number_is_a_plan_as_it_always_was(plan):
    made = json.loads(plan("described:job", "--gpus", "4", *CARD, "--json")[1])
    assert "forecast" in made
    assert any("on 4 GPUs with DDP each would take 1,024 samples" in advice for advice in made["advice"])


def test_a_configuration_is_forecast_with_its_batch_and_overrides(plan):
    small = ["data.n_users=60", "data.n_items=40", "model.name=bpr", "trainer.gradient_accumulation_steps=2"]
    made = json.loads(plan(*small, "--gpus", "1,2", "--batch-size", "100", *CARD, "--json")[1])
    assert (made["batch_size"], made["accumulation"]) == (100, 2)
    assert made["rows"][1]["share"] == 50


def test_a_memory_limit_is_obeyed(plan):
    out = plan("described:job", *SEVERAL, *CARD, "--memory", "20MiB")[1]
    assert cells(out)[0][8] == "no"


@pytest.mark.slow
def test_measuring_on_the_cpu_needs_no_gpu(tmp_path):
    done = program("described:job", "--gpus", "1,2", "--measure", "--link", "10GB/s")
    assert (done.returncode, done.stderr) == (0, "")
    assert "this CPU, batch 4,096, 32" in done.stdout
    assert "ranks" in done.stdout
    assert [row[:3] for row in cells(done.stdout)] == [["1", "alone", "4,096"], ["2", "DDP", "2,048"]]


@pytest.mark.slow
def test_under_torchrun_the_link_is_measured_and_one_process_speaks():
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "brim", "plan"]
    done = program("described:job", "--gpus", "1,2", "--link", "measured", *CARD, "--json", launcher=launcher)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    link = json.loads(done.stdout)["link"]
    assert (link["name"], link["measured"]) == ("gloo over 2 processes", True)


def program(*arguments, launcher=("-m", "brim", "plan")):
    """The real program, without a GPU."""
    return subprocess.run(
        [sys.executable, *launcher, *arguments], capture_output=True, text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--gpus", "0"], "--gpus '0' must be a whole number of at least 1, or several such as 1,2,4,8"),
        (["--gpus", "a"], "--gpus 'a' must be a whole number"),
        (["--gpus", ""], "--gpus '' must be a whole number"),
        (["--gpus", "1,,2"], "--gpus '1,,2' must be a whole number"),
        (["--gpus", "1,2,"], "--gpus '1,2,' must be a whole number"),
        (["--gpus", "1,-2"], "--gpus '1,-2' must be a whole number"),
        (["--gpus", "1.5,2"], "--gpus '1.5,2' must be a whole number"),
        (["--gpus", "²,4"], "--gpus '²,4' must be a whole number"),
        (["--gpus", "2,2"], "--gpus '2,2' names a number twice"),
        ([*SEVERAL, *CARD, "--link", "string"], "there is no link 'string'; use nvlink, "),
        ([*SEVERAL, *CARD, "--link", "0GB/s"], "there is no link '0GB/s'"),
        ([*SEVERAL, *CARD, "--link", "measured"], "a link is measured between processes: torchrun "),
        ([*SEVERAL, *CARD, "--step-ms", "0"], "step_ms=0.0 must be milliseconds, more than 0"),
        ([*SEVERAL, *CARD, "--step-ms", "-3"], "step_ms=-3.0 must be milliseconds"),
        ([*SEVERAL, *CARD, "--step-ms", "nan"], "step_ms=nan must be milliseconds"),
        ([*SEVERAL, *CARD, "--step-ms", "soon"], "--step-ms"),
        ([*SEVERAL, *CARD, "--measure"], "what is measured is the device that is here: leave out the card"),
        ([*SEVERAL, "--measure", "--step-ms", "3"], "either measured or given"),
        ([*SEVERAL, "--card", "all"], "--card all lists the memory of cards"),
        ([*SEVERAL, "--card", "A16"], "how fast NVIDIA A16 computes is not known"),
        (["--gpus", "4", "--step-ms", "3"], "--step-ms belongs to the speed-up of several numbers of GPUs"),
        (["--link", "pcie4"], "--link belongs to the speed-up"),
        (["--measure"], "--measure belongs to the speed-up"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_on_stderr_and_exit_2(plan, tmp_path, arguments, part):
    code, out, err = plan("described:job", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("brim: ")
    assert err.count("\n") == 1
    assert part in err
    assert not (tmp_path / "brim-error.txt").exists()
