import sys
from types import SimpleNamespace

import pytest

from brim.record import MetricsFile, RunFolder
from brim.record.loggers import tensorboard
from brim.record.loggers.tensorboard import HELD_SECONDS, TensorBoardLogger


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


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


@pytest.fixture
def board(monkeypatch):
    """A logger of a fake TensorBoard, its clock, and what was told to the board."""
    told, clock = [], [100.0]
    writer = SimpleNamespace(
        add_scalar=lambda name, value, step, walltime=None: told.append((name, value, step, walltime or clock[0])),
        close=lambda: told.append("closed"),
    )
    monkeypatch.setattr(tensorboard, "time", SimpleNamespace(time=lambda: clock[0]))
    monkeypatch.setattr(tensorboard, "summary_writer", lambda folder: told.append("imported") or writer)
    return TensorBoardLogger("here"), clock, told


def test_nothing_is_imported_in_the_first_seconds_and_then_everything_is_written_with_its_time(board):
    logger, clock, told = board
    logger.write(1, 1, {"loss": 1.0, "lr": 0.1})
    clock[0] += HELD_SECONDS / 2
    logger.write(2, 1, {"loss": 2.0})
    assert told == []
    clock[0] += HELD_SECONDS / 2
    logger.write(3, 1, {"loss": 3.0})
    first, middle, last = 100.0, 100.0 + HELD_SECONDS / 2, 100.0 + HELD_SECONDS
    whole = [
        "imported",
        ("loss", 1.0, 1, first),
        ("lr", 0.1, 1, first),
        ("loss", 2.0, 2, middle),
        ("loss", 3.0, 3, last),
    ]
    assert told == whole
    clock[0] += 1
    logger.write(4, 1, {"loss": 4.0})
    assert told == [*whole, ("loss", 4.0, 4, last + 1)]
    logger.close()
    assert told[5:] == [("loss", 4.0, 4, last + 1), "closed"]


def test_a_run_that_ends_before_that_has_its_numbers_too_and_one_without_numbers_imports_nothing(board):
    logger, _, told = board
    logger.close()
    assert told == []
    logger.write(1, 1, {"loss": 1.0})
    logger.close()
    assert told == ["imported", ("loss", 1.0, 1, 100.0), "closed"]
