import csv

import pytest

from brim.record import MetricsFile, RunFolder
from brim.record.loggers import CsvLogger


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


def table(folder):
    with (folder.path / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_has_a_column_for_every_number_that_came(folder):
    metrics = MetricsFile(folder, "csv")
    metrics.write(1, 1, loss=0.5)
    metrics.write(2, 1, **{"eval/loss": 0.25, "eval/f1": 1.0})
    metrics.write(3, 2, loss=float("nan"))
    metrics.close()
    rows = table(folder)
    assert [(row["step"], row["epoch"], row["loss"], row["eval/loss"]) for row in rows] == [
        ("1", "1", "0.5", ""), ("2", "1", "", "0.25"), ("3", "2", "nan", ""),
    ]  # fmt: skip


def test_a_run_that_goes_on_adds_to_its_table(folder):
    for number, name in enumerate(("loss", "kl", "loss")):
        logger = CsvLogger(folder.path)
        logger.write(number, 1, {name: float(number)})
        logger.close()
    assert [(row["loss"], row["kl"]) for row in table(folder)] == [("0.0", ""), ("", "1.0"), ("2.0", "")]
