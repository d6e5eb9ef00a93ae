import json
import re

import pytest

import brim
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.errors import RunFolderError
from brim.record import RunFolder, write_report
from brim.workloads.recommender import BPR

HOSTILE = '</script><script>hacked=1</script><!--<img src=x onerror=hacked=1>{{script}}\\u003c/script>&lt;"'


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


# The page


def shown(folder):
    """The page of a run without brim's own parts: all that could come from the run."""
    page = write_report(folder).read_text()
    data = re.search(r'<script type="application/json" id="run">(.*?)</script>', page, re.S)[1]
    return page, json.loads(data)


def blocks(page):
    """What a browser takes for markup: the beginnings of elements, of comments, and the ends."""
    return re.findall(r"<[a-z!/?]", page, re.I)


def test_no_text_of_a_run_becomes_markup(folder):
    plain, _ = shown(folder)
    folder.write(
        "metrics.jsonl", json.dumps({"step": 1, "epoch": 1, "loss": 0.5, HOSTILE: 1.0, f"eval/{HOSTILE}": 2}) + "\n"
    )
    folder.write("events.jsonl", json.dumps({"time": 1.0, "kind": HOSTILE, "line": HOSTILE}) + "\n")
    folder.write("config.yaml", f"workload: {json.dumps(HOSTILE)}\n# {HOSTILE}\n")
    folder.write_json("model.json", {"model": HOSTILE})
    folder.write_json("machine.json", {HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]})
    forecast = {"reserved": 1, "parts": {HOSTILE: 1}, "card": HOSTILE, "notes": [HOSTILE], "peak_in": HOSTILE}
    folder.write_json("plan.json", {"forecast": forecast, "reasons": [HOSTILE], "strategy": HOSTILE})
    folder.write_json("result.json", {"ended": HOSTILE, "monitor": HOSTILE, "table": {HOSTILE: {HOSTILE: 1.0}}})
    page, data = shown(folder)
    assert json.dumps(data).count("hacked=1") > 10  # the texts are there
    assert blocks(page) == blocks(plain)  # and are no markup


def test_a_page_in_which_texts_were_markup_would_be_told():
    """The comparison above can fail."""
    assert blocks(f"<p>{HOSTILE}</p>") != blocks("<p></p>")


@pytest.mark.matrix(50)
@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "events.jsonl", "config.yaml", "model.json", "machine.json", "result.json", "plan.json"]
)
@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\0", b"[" * 100_000, b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}", b"null", b'"text"', b"9" * 5000,
     b'{"time": 1e308, "step": 1, "loss": 1}\n{"time": -1e308, "step": 2, "loss": 1}', b'{"step": 1e308, "loss": 1}',
     b'{"step": NaN, "loss": Infinity, "time": "x"}', b'{"ended": {"a": []}, "table": [1], "model": 5, "steps": "x"}',
     b'{"table": {"a": 5, "b": {"c": "d", "e": 1e400}}}', b'{"line": {"a": 1}, "kind": null, "time": 1e400}',
     b'{"\\ud800": 1, "step": 1}', b"a: !!timestamp x", b'a: !!int ""', b"a: =", b"a: 2001-99-99", b"? [a]\n: 1",
     b"a: !!python/object/apply:os.getcwd []"],
)  # fmt: skip
def test_a_page_is_written_whatever_a_run_folder_holds(folder, name, content):
    (folder.path / name).write_bytes(content)
    _, data = shown(folder)
    assert data["name"] == "run"


@pytest.mark.parametrize("levels", [19, 100, 500, 900, 950, 990, 5000])
@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "events.jsonl", "model.json", "machine.json", "result.json", "plan.json"]
)
def test_nesting_of_any_depth_is_shown_or_left_out(folder, name, levels):
    nested = "[" * levels + "]" * levels
    keys = ("step", "time", "kind", "line", "model", "ended", "monitor", "table", "forecast", "reasons")
    (folder.path / name).write_text("{" + ", ".join(f'"{key}": {nested}' for key in keys) + "}")
    _, data = shown(folder)
    assert data["name"] == "run"


def test_merges_that_double_each_time_are_left_out_of_the_page(folder):
    maps = ", ".join(f"&m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, 60))
    folder.write("config.yaml", f"data: [&m0 {{a: 1}}, {maps}]")
    page, data = shown(folder)
    assert data["name"] == "run" and len(page) < 10**6


def test_a_file_that_is_a_folder_is_an_empty_one(folder):
    for name in ("events.jsonl", "config.yaml", "model.json", "machine.json", "result.json"):
        (folder.path / name).mkdir()
    assert shown(folder)[1]["events"] == []


# The model


def describe(folder, **changes):
    arguments = {"n_users": 3, "n_items": 4, "embed_dim": 2, **changes}
    folder.write_json("model.json", {"model": "BPR", "arguments": arguments})


@pytest.fixture
def trained(folder):
    Checkpoints(folder.checkpoints, keep=1).save_best(BPR(3, 4, 2), 5)
    describe(folder)
    return folder


def test_a_model_as_it_was_described_is_loaded(trained):
    assert isinstance(brim.load(trained.path), BPR)


@pytest.mark.parametrize(
    "changes",
    [{"n_users": 10**12}, {"n_items": 10**9}, {"embed_dim": 10**8}, {"n_users": 10**9, "n_items": -(10**9)},
     {"n_users": -1}, {"n_users": 0, "n_items": 0}, {"n_users": 1.5}, {"n_users": "3"}, {"n_users": None},
     {"n_users": [3]}, {"embed_dim": -2}, {"embed_dim": True}, {"embed_dim": float("nan")}, {"device": "cuda"},
     {"n_users": 10**400}],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_a_description_that_lies_takes_no_memory_and_is_refused(trained, changes):
    describe(trained, **changes)
    with pytest.raises(RunFolderError):
        brim.load(trained.path)


@pytest.mark.parametrize(
    "description",
    ["[" * 100_000, "\0", '{"model": ["BPR"], "arguments": {}}', '{"model": {}, "arguments": {}}', '{"model": "BPR"}',
     '{"model": "BPR", "arguments": [3, 4]}', '{"model": "__import__", "arguments": {"name": "os"}}',
     '{"model": "GPT2RecommenderEnhanced", "arguments": {"n_users": 1, "n_items": 1, "dataset": {"users": [1]}}}',
     '{"model": "GPT2RecommenderEnhanced", "arguments": {"n_users": 1, "n_items": 1, "embed_dim": 1, "dataset": "x"}}'],
    ids=lambda description: description[:60],
)  # fmt: skip
def test_a_description_of_any_shape_is_one_sentence(trained, description):
    trained.write("model.json", description)
    with pytest.raises(RunFolderError, match=r"model\.json does not describe a model"):
        brim.load(trained.path)


def test_a_description_that_is_a_folder_is_one_sentence(trained):
    (trained.path / "model.json").unlink()
    (trained.path / "model.json").mkdir()
    with pytest.raises(RunFolderError, match=r"model\.json does not describe a model"):
        brim.load(trained.path)
