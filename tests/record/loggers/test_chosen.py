import csv
import re
import sys

import pytest

from brim.errors import ConfigError
from brim.record import MetricsFile, RunFolder
from brim.record.loggers import MLflowLogger, WandbLogger, check_loggers, make_loggers, without_trackers


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


def test_an_object_of_the_users_gets_every_line_and_hears_where_the_run_is(folder):
    own = Own()
    metrics = MetricsFile(folder, [own, "csv"])
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert (own.lines, own.closed, own.folder) == ([(1, 1, {"loss": 0.5})], 1, folder.path)
    assert len(table(folder)) == 1


def test_one_that_cannot_begin_is_left_out_with_a_word_and_closed_by_nobody(folder):
    class Offline(Own):
        def start(self, folder):
            raise ConnectionError("no network\nand a long story")

    said, offline, good = [], Offline(), Own()
    metrics = MetricsFile(folder, [offline, good], said.append)
    metrics.begin()
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert said == ["Offline failed and gets no more numbers: no network"]
    assert (offline.lines, offline.closed, len(good.lines), good.closed) == ([], 0, 1, 1)


def test_an_object_hears_once_where_the_run_is_and_before_the_first_line(folder):
    class Counting(Own):
        def start(self, folder):
            self.lines.append(folder)

    own = Counting()
    metrics = MetricsFile(folder, own)
    assert own.lines == []  # the folder says nothing of the run yet
    metrics.begin()
    metrics.begin()
    metrics.write(1, 1, loss=0.5)
    assert own.lines == [folder.path, (1, 1, {"loss": 0.5})]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_library_that_is_missing_is_said_with_the_line_that_installs_it(monkeypatch, name, by_name):
    monkeypatch.setattr("brim.record.loggers.chosen.find_spec", lambda asked: None if asked == name else object())
    given = name if by_name else {"wandb": WandbLogger, "mlflow": MLflowLogger}[name]()
    with pytest.raises(ConfigError, match=rf"needs the library {name}; pip install 'brim\[{name}\]'"):
        check_loggers(["csv", given])


def test_a_run_that_leaves_no_trace_has_no_tracker():
    own = Own()
    assert without_trackers(["csv", "wandb", own, MLflowLogger(), WandbLogger()]) == ["csv", own]
    assert without_trackers("mlflow") == [] and without_trackers(None) is None


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


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("tensorbord", "did you mean 'tensorboard'"),
        ("wandbb", "did you mean 'wandb'"),
        ("neptune", "use 'tensorboard', 'csv', 'wandb', 'mlflow', an object, or [] for none"),
        (5, "an int"),
        ([Own], "the class Own"),
    ],
)
def test_what_cannot_be_a_logger_is_refused_in_a_sentence(given, part):
    with pytest.raises(ConfigError, match=re.escape(part)):
        check_loggers(given)
