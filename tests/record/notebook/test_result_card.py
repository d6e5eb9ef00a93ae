import json
import xml.etree.ElementTree as tree
from pathlib import Path

import brim
from brim.record.notebook import result_card

HOSTILE = "</td><script>alert(1)</script>"


def run_folder(path, monitor="loss"):
    path.mkdir()
    lines = [{"step": step, "epoch": 1, "loss": 1.0 / step} for step in range(1, 5)]
    lines += [{"step": 4, "epoch": 1, "eval/loss": 0.5, "eval/f1": 0.75}, {"step": 5, "epoch": 2, "loss": None}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "result.json").write_text(json.dumps({"monitor": monitor}))
    return path


def test_it_has_the_numbers_and_both_losses_in_one_chart(tmp_path):
    card = tree.fromstring(result_card(run_folder(tmp_path / "a"), 1200, 2, 75.0, "done", {"loss": 0.5}))
    cells = [(row[0].text, row[1].text) for row in card.iter("tr")]
    assert cells == [
        ("ended", "done"), ("steps", "1,200"), ("epochs", "2"), ("time", "1 min 15 s"), ("loss", "0.5"),
        ("run", str(tmp_path / "a")),
    ]  # fmt: skip
    assert len(list(card.iter("svg"))) == 1 and len(list(card.iter("polyline"))) == 1
    assert len(list(card.iter("circle"))) == 1  # one evaluation


def test_another_metric_has_a_chart_of_its_own(tmp_path):
    card = tree.fromstring(result_card(run_folder(tmp_path / "a", "f1"), 5, 1, 1.0, "done", {"f1": 0.75}))
    assert ["evaluation f1" in "".join(drawing.itertext()) for drawing in card.iter("svg")] == [False, True]


def test_names_show_only_themselves_and_many_metrics_are_counted(tmp_path):
    metrics = {HOSTILE: 1.0, **{f"m{number}": 0.0 for number in range(20)}}
    text = result_card(run_folder(tmp_path / "a", HOSTILE), 5, 1, 1.0, HOSTILE, metrics)
    assert "<script" not in text and "9 in result.metrics" in text
    tree.fromstring(text)


def test_without_the_run_folder_there_is_the_table_alone():
    result = brim.Result(Path("nowhere"), 10, 1, 0.5, "done", {"loss": 0.25})
    text = result._repr_html_()
    assert "<svg" not in text and "0.25" in text and tree.fromstring(text) is not None
