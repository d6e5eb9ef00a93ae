import csv
import sys

import pytest

from brim.errors import ConfigError
from brim.record import MetricsFile, RunFolder
from brim.record.loggers import CsvLogger, check_loggers, make_loggers


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


def table(folder):
    with (folder.path / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Own:
    def __init__(self, fails=False):
        self.lines, self.fails, self.closed, self.folder = [], fails, 0, None

    def start(self, folder):
        self.folder = folder

    def write(self, step, epoch, numbers):
        if self.fails:
            raise ConnectionError("no network")
        self.lines.append((step, epoch, numbers))

    def close(self):
        self.closed += 1


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


def test_an_object_of_the_users_gets_every_line_and_hears_where_the_run_is(folder):
    own = Own()
    metrics = MetricsFile(folder, [own, "csv"])
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert (own.lines, own.closed, own.folder) == ([(1, 1, {"loss": 0.5})], 1, folder.path)
    assert len(table(folder)) == 1


def test_one_that_fails_is_left_out_with_a_word_and_the_others_go_on(folder):
    said, good = [], Own()
    metrics = MetricsFile(folder, [Own(fails=True), good], said.append)
    for step in (1, 2):
        metrics.write(step, 1, loss=0.5)
    metrics.close()
    assert len(good.lines) == 2 and said == ["Own failed and gets no more numbers: no network"]
    assert len((folder.path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_disk_that_is_full_ends_no_run(folder):
    class Full(Own):
        def write(self, step, epoch, numbers):
            raise OSError(28, "No space left on device")

        def close(self):
            raise OSError(28, "No space left on device")

    said = []
    metrics = MetricsFile(folder, [Full()], said.append)
    metrics.write(1, 1, loss=0.5)
    metrics._loggers.append(Full())
    metrics.close()
    assert len(said) == 2 and len((folder.path / "metrics.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("given", [False, [], ()])
def test_all_but_the_file_of_the_run_can_be_switched_off(folder, given):
    metrics = MetricsFile(folder, given)
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert not list(folder.path.glob("events.out*")) and (folder.path / "metrics.jsonl").read_text()


def test_tensorboard_is_taken_where_it_is_installed(folder, monkeypatch):
    assert [type(logger).__name__ for logger in make_loggers(None, folder)] == ["TensorBoardLogger"]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # an import of it fails
    assert make_loggers(None, folder) == []
    with pytest.raises(ConfigError, match="pip install"):
        check_loggers("tensorboard")


def test_tensorboard_writes_its_file_with_the_first_number(folder):
    metrics = MetricsFile(folder)
    assert not list(folder.path.glob("events.out*"))  # nor is it imported before
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert len(list(folder.path.glob("events.out*"))) == 1


def test_a_tensorboard_that_cannot_be_imported_is_left_out_with_a_word(folder, monkeypatch):
    said = []
    metrics = MetricsFile(folder, None, said.append)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert len(said) == 1 and said[0].startswith("TensorBoardLogger failed and gets no more numbers: ")
    assert len((folder.path / "metrics.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("tensorbord", "did you mean 'tensorboard'"),
        ("wandb", "use 'tensorboard'"),
        (5, "a int"),
        ([Own], "the class Own"),
    ],
)
def test_what_cannot_be_a_logger_is_refused_in_a_sentence(given, part):
    with pytest.raises(ConfigError, match=part):
        check_loggers(given)
