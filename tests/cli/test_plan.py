import json
import os
import subprocess
import sys

import pytest
import torch

import brim.memory
from brim.cli import plan_view
from brim.errors import CannotFit
from brim.hardware.cards import CARDS
from brim.memory.allocator.peak import PARTS

SMALL = ["data.n_users=60", "data.n_items=40", "model.name=bpr"]
CARD = ["--card", "NVIDIA H200"]
FILE = """\
import torch
from torch import nn


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        print("forward")
        return self.layer(x)  # line 12


def rows(width):
    return lambda n: ((torch.empty(n, width),), {})


def job():
    return {"model": lambda: nn.Linear(1024, 1024), "batch": rows(1024), "batch_size": 262144}


class Branches(nn.Linear):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x).square().mean()


def branches():
    return {"model": lambda: Branches(8, 8), "batch": rows(8), "batch_size": 16}


def wrong():
    return {"model": Wrong, "batch": rows(8), "batch_size": 16}


def deep():
    layers = lambda: nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    return {"model": layers, "batch": rows(1024), "batch_size": 65536}
"""


@pytest.fixture(autouse=True)
def in_a_folder_with_a_file(tmp_path, monkeypatch):
    (tmp_path / "described.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    sys.modules.pop("described", None)


def is_one_sentence(err):
    return err.startswith("brim: ") and err.count("\n") == 1 and "Traceback" not in err


def program(*arguments, gpus=""):
    """The real program, without a GPU."""
    return subprocess.run(
        [sys.executable, "-m", "brim", "plan", *arguments], capture_output=True, text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": gpus},
    )  # fmt: skip


# A plan


def test_the_table_has_all_parts_and_the_choices_their_reasons(plan):
    code, out, err = plan(*SMALL, *CARD)
    assert (code, err) == (0, "")
    table = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert table == ["parameters", "gradients", "optimizer", "average", "activations", "cache", "temporary",
                     "workspace", "fragmentation", "context"]  # fmt: skip
    assert set(table) == set(PARTS)
    assert "NVIDIA H200, micro-batch 2,048, precision 32" in out
    for part in ("allocated ", "reserved ", "on the card ", "torch may reserve ", "largest micro-batch that fits: "):
        assert part in out
    assert "the whole batch fits at once" in out


def test_what_was_not_measured_is_told_as_a_band(plan):
    assert "not measured" not in plan(*SMALL, *CARD)[1]
    assert "this card was not measured" in plan(*SMALL, "--card", "NVIDIA A10G")[1]


def test_explain_names_what_holds_the_most(plan):
    out = plan("described:job", "--explain", *CARD)[1]
    assert "peak in the " in out
    assert "described.py" in out or "addmm" in out


def test_json_is_all_there_is_on_stdout():
    done = program("described:deep", "--json", "--memory", "1GiB", *CARD)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    made = json.loads(done.stdout)
    assert made["batch_size"] == 65_536
    assert made["slices"] > 1
    assert made["slices"] * made["micro_batch"] >= 65_536
    assert made["limit"] == 1 << 30
    assert {"largest_micro_batch", "gpus", "strategy", "reasons", "advice", "forecast"} <= set(made)
    forecast = made["forecast"]
    assert (forecast["card"], forecast["fits"]) == ("NVIDIA H200", True)
    assert sum(forecast["parts"].values()) == forecast["device"]
    assert forecast["holders"]
    assert {"allocated", "reserved", "device_band", "limit", "peak_in", "notes"} <= set(forecast)


def test_a_configuration_file_and_overrides(plan, tmp_path):
    (tmp_path / "c.yaml").write_text("data: {n_users: 60, n_items: 40}\nmodel: {name: bpr}\n")
    made = json.loads(plan("c.yaml", "train_ds.batch_size=100", "trainer.precision=bf16", "--json", *CARD)[1])
    assert (made["batch_size"], made["forecast"]["precision"]) == (100, "bf16")


def test_another_batch_size(plan):
    assert json.loads(plan(*SMALL, "--batch-size", "77", "--json", *CARD)[1])["micro_batch"] == 77
    assert json.loads(plan("described:job", "--batch-size", "77", "--json", *CARD)[1])["batch_size"] == 77


def test_all_cards_are_listed_once(plan, monkeypatch):
    some = [
        card for at, card in enumerate(CARDS) if at % 6 == 0 or card.name in ("NVIDIA GeForce RTX 3070", "NVIDIA H200")
    ]
    monkeypatch.setattr(plan_view, "CARDS", some)
    code, out, err = plan("described:job", "--card", "all", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert sorted(row["card"] for row in rows) == sorted(card.name for card in some)
    for row in rows:
        assert row["fits"]
        assert row["slices"] * row["micro_batch"] >= 262_144
        assert row["reserved"] <= row["limit"]
    by_name = {row["card"]: row for row in rows}
    assert by_name["NVIDIA GeForce RTX 3070"]["slices"] >= by_name["NVIDIA H200"]["slices"] == 1


def test_all_cards_as_a_table_are_sorted_by_memory(plan, monkeypatch):
    some = CARDS[::8]
    monkeypatch.setattr(plan_view, "CARDS", some)
    monkeypatch.setenv("COLUMNS", "120")  # wide enough for the longest name
    code, out, _ = plan(*SMALL, "--card", "all", "--batch-size", "64")
    names = [line.split("  ")[0].strip() for line in out.splitlines()]
    memory = {card.name: card.memory for card in CARDS}
    assert code == 0
    assert [memory[name] for name in names if name in memory] == sorted(card.memory for card in some)


def test_all_cards_as_a_table_fit_80_columns_with_every_number_whole(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = plan(*SMALL, "--card", "all", "--batch-size", "64")
    lines = [line.rstrip() for line in out.splitlines()]
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert sum(line.endswith("%") for line in lines) == len(CARDS)
    assert "…" not in out


def test_cards_on_which_nothing_fits_say_no(plan):
    code, out, _ = plan("described:job", "--card", "all", "--json", "--memory", "20MiB")
    assert code == 0
    rows = json.loads(out)
    assert not [row for row in rows if row["fits"]]
    assert {row["limit"] for row in rows} == {20 << 20}


@pytest.mark.slow
def test_a_batch_that_leaves_no_room_on_one_card_does_not_end_the_list(plan, tmp_path):
    (tmp_path / "large.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def job():\n"
        "    return {'model': lambda: nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(20))),\n"
        "            'batch': lambda n: ((torch.empty(n, 2048),), {}), 'batch_size': 65536}\n"
    )
    code, out, err = plan("large:job", "--card", "all", "--json", "--memory", "2GiB")
    assert code == 0, err
    assert len(json.loads(out)) == len(CARDS)


# Tiers


@pytest.fixture
def planned(monkeypatch):
    """What the command would plan."""
    jobs = []

    def remember(**job):
        jobs.append(job)
        raise CannotFit("enough seen")

    monkeypatch.setattr(brim.memory, "plan", remember)
    return jobs


@pytest.mark.parametrize(("tier", "batch_size", "cached"), [("large", 2048, True), ("small", 512, False)])
def test_a_tier_changes_batch_and_cache(plan, planned, tier, batch_size, cached):
    pytest.importorskip("transformers")
    assert plan("--tier", tier, "data.n_users=60", "data.n_items=40")[0] == 3
    (job,) = planned
    assert job["batch_size"] == batch_size
    assert job["model"].model.use_cache == cached


def test_settings_beside_a_tier_win(plan, planned):
    plan("--tier", "small", *SMALL, "train_ds.batch_size=99")
    assert planned[0]["batch_size"] == 99


def test_the_small_tier_is_planned(plan):
    assert json.loads(plan("--tier", "small", *SMALL, "--json", *CARD)[1])["batch_size"] == 512


# What cannot be done


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([*SMALL, "--card", "4091"], ["no card is known as '4091'", "NVIDIA GeForce RTX 4090"]),
        ([*SMALL, "--card", ""], ["no card is known as ''"]),
        (
            [*SMALL, *CARD, "--memory", "nonsense"],
            ["memory='nonsense' is not an amount of memory; write it as 8GiB or 500MB"],
        ),
        ([*SMALL, "--memory", "nonsense", "--card", "all"], ["memory='nonsense'"]),
        (["--tier", "wrong"], ["there is no tier 'wrong'", "large: ", "medium: ", "small: "]),
        (["described:job", "--tier", "small"], ["described:job is a function: settings and tiers belong to"]),
        (["described:job", "trainer.lr=1"], ["described:job is a function: settings and tiers belong to"]),
        (["described:absent"], ["described has no function 'absent'"]),
        (["absent_module:job"], ["there is no module 'absent_module'"]),
        (["nope.yaml"], ["there is no configuration file nope.yaml"]),
        (["model.nome=bpr"], ["did you mean 'model.name'?"]),
        ([*SMALL, "--gpus", "0"], ["--gpus"]),
        ([*SMALL, "--batch-size", "0"], ["--batch-size"]),
        ([*SMALL, "--batch-size", "x"], ["--batch-size"]),
        (["--cards"], ["--cards"]),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_on_stderr_exit_2_and_nothing_written(plan, tmp_path, arguments, parts):
    code, out, err = plan(*arguments)
    assert (code, out) == (2, "")
    assert is_one_sentence(err)
    for part in parts:
        assert part in err
    assert not (tmp_path / "brim-error.txt").exists()


@pytest.mark.parametrize("more", [[], ["--json"]], ids=str)
def test_nothing_fits_is_exit_3_with_what_helps_in_one_sentence(plan, more):
    code, out, err = plan("described:job", "--memory", "20MiB", "--card", "NVIDIA A10G", *more)
    assert (code, out) == (3, "")
    assert is_one_sentence(err)
    assert "not even one sample fits: it needs " in err
    helps = err.partition("are missing; what helps most: ")[2]
    assert len(helps.split("; ")) == 3
    assert "a higher limit (memory=, --memory), or none: " in helps
    assert "a larger card" not in helps


def test_a_forward_that_fails_is_told_with_the_line_of_the_user(plan, tmp_path):
    code, _, err = plan("described:wrong", *CARD)
    assert code == 2
    assert is_one_sentence(err)
    assert f"the forward pass failed at {tmp_path / 'described.py'}:12 in layer (Linear): RuntimeError: " in err
    assert not (tmp_path / "brim-error.txt").exists()


def test_a_function_that_fails_is_told_with_its_line(plan, tmp_path):
    (tmp_path / "described.py").write_text("def job():\n    raise KeyError('width')\n")
    code, out, err = plan("described:job", *CARD)
    assert (code, out) == (2, "")
    assert err == f"brim: described:job failed at {tmp_path / 'described.py'}:2: KeyError: 'width'\n"
    assert not (tmp_path / "brim-error.txt").exists()


def test_calibrating_without_a_gpu_is_refused(plan, tmp_path):
    code, out, err = plan("--calibrate")
    assert (code, out) == (2, "")
    assert err == "brim: there is no GPU in this machine to calibrate with\n"
    assert not (tmp_path / "cache").exists()


# The frontier


WORDS = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(x)))


def job():
    layers = lambda: nn.Sequential(*(Block() for _ in range(4)))
    return {"model": layers, "batch": lambda n: ((torch.empty(n, 256, 64),), {}), "batch_size": 64}
"""


def test_a_batch_that_does_not_fit_is_shown_with_every_way_to_make_it_fit(plan, tmp_path, monkeypatch):
    (tmp_path / "blocks.py").write_text(WORDS)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = plan("blocks:job", "--card", "NVIDIA A10G", "--memory", "130MiB")
    assert (code, err) == (0, "")
    table = out.partition("by the time of a step (forecast):")[2]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 80
    assert "the fastest that fits: micro-batch" in table
    assert "Trainer(fit='auto') takes it" in " ".join(table.split())
    assert "optimizer state in host memory" in table
    assert sum(line.rstrip().endswith("<") for line in table.splitlines()) == 1


@pytest.mark.slow
def test_the_frontier_as_json_names_the_blocks_and_what_fits(plan, tmp_path):
    (tmp_path / "blocks.py").write_text(WORDS)
    arguments = ("blocks:job", "--card", "NVIDIA A10G", "--memory", "130MiB", "--json")
    made = json.loads(plan(*arguments)[1])["frontier"]
    fastest = made["fastest"]
    assert fastest in made["rows"]
    assert fastest["reserved"] <= made["limit"] == 130 << 20
    assert set(fastest["recomputed"]) <= {"0", "1", "2", "3"}
    assert fastest["step_ms"] == min(row["step_ms"] for row in made["rows"] if row["fits"])
    assert "frontier" not in json.loads(plan(*arguments, "--no-frontier")[1])


def test_all_cards_end_with_the_smallest_that_trains_it_and_the_fastest(plan, monkeypatch):
    monkeypatch.setattr(plan_view, "CARDS", [card for card in CARDS if card.name in ("NVIDIA L4", "NVIDIA H200")])
    out = " ".join(plan("described:job", "--card", "all")[1].split())
    assert "the smallest card that trains this: NVIDIA L4, about" in out
    assert "the fastest: NVIDIA H200," in out


def test_the_smallest_card_may_be_one_whose_speed_is_not_known(plan, monkeypatch):
    names = ("NVIDIA GeForce RTX 4060", "NVIDIA H200")
    monkeypatch.setattr(plan_view, "CARDS", [card for card in CARDS if card.name in names])
    out = " ".join(plan("described:job", "--card", "all")[1].split())
    assert "the smallest card that trains this: NVIDIA GeForce RTX 4060, how fast is not known; the fastest:" in out


@pytest.mark.parametrize("card", ["NVIDIA L4", "all"])
def test_what_the_forecast_could_not_know_is_told_for_one_card_and_for_all(plan, monkeypatch, card):
    monkeypatch.setattr(plan_view, "CARDS", [card for card in CARDS if card.name == "NVIDIA L4"])
    out = " ".join(plan("described:branches", "--card", card)[1].split())
    assert out.count("note: a yes or no was asked for at") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which is the card")
@pytest.mark.parametrize("options", [[], ["--json"], ["--frontier"], ["--gpus", "1,2"]], ids=str)
def test_without_a_gpu_and_without_a_name_it_says_which_card_it_is_about(plan, options):
    code, _, err = plan("described:job", *options)
    assert code == 0
    assert err.count("no GPU is here and no card is named, so this is about the NVIDIA H200") == 1
    assert "--card 'RTX 4090' names another, --card all shows every known one" in err
    assert "UserWarning" not in err


@pytest.mark.parametrize("options", [CARD, ["--card", "all"], ["--gpus", "1,2", "--measure"]], ids=str)
def test_a_card_that_is_named_or_measured_is_not_assumed(plan, options):
    code, _, err = plan("described:job", "--batch-size", "64", *options)
    assert code == 0 and "no card is named" not in err
