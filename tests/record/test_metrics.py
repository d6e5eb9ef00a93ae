import json
import math
import sys
from types import SimpleNamespace

import pytest

from brim.record import MetricsFile, RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


@pytest.fixture
def without_tensorboard(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # an import of it fails


def records_of(folder):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_every_write_is_one_object_in_the_file(folder, without_tensorboard):
    metrics = MetricsFile(folder)
    metrics.write(1, 0, loss=0.5, lr=1e-3)
    metrics.write(2, 0, **{"eval/ndcg@10": 0.25})
    metrics.flush()
    first, second = records_of(folder)
    assert {"step": 1, "epoch": 0, "loss": 0.5, "lr": 1e-3}.items() <= first.items()
    assert {"step": 2, "eval/ndcg@10": 0.25}.items() <= second.items()
    assert 0 <= second["time"] - first["time"] < 60


def test_numbers_come_back_with_every_bit(folder, without_tensorboard):
    metrics = MetricsFile(folder)
    metrics.write(1, 0, loss=1 / 3, small=5e-324)
    metrics.flush()
    assert records_of(folder)[0]["loss"] == 1 / 3
    assert records_of(folder)[0]["small"] == 5e-324


def test_a_run_that_goes_on_adds_to_its_metrics(folder, without_tensorboard):
    for step in (1, 2):
        metrics = MetricsFile(folder)
        metrics.write(step, 0, loss=1.0)
        metrics.close()
    assert [record["step"] for record in records_of(folder)] == [1, 2]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_bad_numbers_leave_the_file_readable_as_json(folder, without_tensorboard, loss):
    metrics = MetricsFile(folder)
    metrics.write(1, 0, loss=loss)
    metrics.flush()
    assert records_of(folder)[0]["loss"] is None


def test_a_watcher_sees_numbers_half_a_second_later_at_most(folder, without_tensorboard, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("brim.record.metrics.time", SimpleNamespace(time=lambda: clock[0]))
    metrics = MetricsFile(folder)
    metrics.write(1, 0, loss=1.0)
    assert records_of(folder) == []
    clock[0] += 0.5
    metrics.write(2, 0, loss=1.0)
    assert [record["step"] for record in records_of(folder)] == [1, 2]


class Board(list):
    """Remembers what TensorBoard would have been told."""

    def add_scalar(self, name, value, step):
        self.append((name, value, step))

    def close(self):
        self.append("closed")


def test_tensorboard_gets_each_number_at_most_once_a_second_and_the_file_gets_all(folder, monkeypatch):
    board, clock = Board(), [100.0]
    for module in ("metrics", "loggers.tensorboard"):
        monkeypatch.setattr(f"brim.record.{module}.time", SimpleNamespace(time=lambda: clock[0]))
    metrics = MetricsFile(folder)
    metrics._loggers[0]._writer = board
    for step in range(1, 7):
        metrics.write(step, 0, loss=float(step), **({"eval": 9.0} if step == 2 else {}))
        clock[0] += 0.5
    metrics.close()
    assert board == [("loss", 1.0, 1), ("eval", 9.0, 2), ("loss", 3.0, 3), ("loss", 5.0, 5), "closed"]
    assert len(records_of(folder)) == 6


def test_tensorboard_can_read_what_was_written(folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    metrics = MetricsFile(folder)
    metrics.write(7, 0, loss=0.5)
    metrics.close()
    events = EventAccumulator(str(folder.path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(7, 0.5)]


def test_without_tensorboard_no_event_file_is_made(folder, without_tensorboard):
    metrics = MetricsFile(folder)
    metrics.write(1, 0, loss=0.5)
    metrics.close()
    assert sorted(path.name for path in folder.path.iterdir()) == ["checkpoints", "metrics.jsonl"]
