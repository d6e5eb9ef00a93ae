import csv

import pytest
from helpers.command import Command
from helpers.pictures import coloured_shards

TRAIN = ("workload=classifier", "data.train=t", "data.size=16", "model.width=4", "model.depth=1", "trainer.device=cpu",
         "trainer.threads=1", "trainer.loggers=false", "train_ds.num_workers=0")  # fmt: skip


@pytest.fixture
def command(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


def test_a_trained_classifier_names_the_classes_of_shards(command, tmp_path):
    coloured_shards(tmp_path / "t", 12, label="txt")
    done = command(tmp_path, "train", *TRAIN, "data.label=txt", "trainer.run_dir=runs/a", "trainer.epochs=1")
    assert done.returncode == 0, done.stderr
    assert command(tmp_path, "classify", "runs/a", "t", "--k", "9", "--to", "said.csv").returncode == 0
    header, *rows = csv.reader((tmp_path / "said.csv").open())
    assert header == ["sample", *(f"{what}_{n}" for n in (1, 2, 3) for what in ("class", "probability"))]
    assert [row[0] for row in rows] == [f"{number:04d}" for number in range(12)]
    assert all({row[1], row[3], row[5]} == {"blue", "green", "red"} for row in rows)
    printed = command(tmp_path, "classify", "runs/a", "t")
    assert len(printed.stdout.splitlines()) == 13


def test_a_run_of_something_else_is_refused(command, tmp_path):
    settings = ("model.name=bpr", "data.n_users=30", "data.n_items=40", "trainer.epochs=1", "trainer.device=cpu")
    assert command(tmp_path, "train", *settings, "trainer.run_dir=runs/a").returncode == 0
    done = command(tmp_path, "classify", "runs/a", "t")
    assert done.returncode == 2
    assert "runs/a is a run of BPR, which classifies nothing" in done.stderr
