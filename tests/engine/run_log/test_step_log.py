import json

import pytest
import torch
from helpers.clock import Clock
from rich.console import Console

from brim.engine.run_log.step_log import StepLog
from brim.engine.run_state.progress import Progress
from brim.engine.shares.host_shares import HostShares
from brim.errors import BadNumbers
from brim.record import MetricsFile, ProgressBar, RunFolder


@pytest.fixture
def make_log(tmp_path):
    def make(log_every=2, device="meta", loggers=None):  # any device but the CPU: there losses are read at once
        folder = RunFolder.create(tmp_path / "run")
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        return StepLog(
            MetricsFile(folder, loggers),
            ProgressBar(Console(quiet=True), 10),
            optimizer,
            log_every,
            torch.device(device),
            HostShares(computes_here=device == "cpu"),
        )

    return make


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


def written(tmp_path):
    return [(line["step"], line["loss"]) for line in lines(tmp_path)]


def add(log, progress, loss, samples=4):
    progress.step += 1
    progress.position += samples
    log.add(torch.tensor(loss), samples, progress)
    log.write_if_due(progress)


def test_losses_are_written_every_so_often_as_means(make_log, tmp_path):
    log, progress = make_log(log_every=2), Progress()
    for loss in (1.0, 3.0, 5.0, 7.0, 9.0):
        add(log, progress, loss)
    log.file.flush()
    assert written(tmp_path) == [(1, 1.0), (2, 3.0), (4, 6.0)]
    log.flush(progress)
    log.file.flush()
    assert written(tmp_path)[3:] == [(5, 9.0)]
    assert progress.epoch_mean == 5.0


def test_a_line_has_the_rate_that_its_last_step_was_made_with(make_log, tmp_path):
    log, progress = make_log(log_every=2), Progress()
    for number, rate in enumerate((0.5, 0.25, 0.125), 1):
        log.optimizer.param_groups[0]["lr"] = rate
        log.note_lr()
        log.optimizer.param_groups[0]["lr"] = -1.0  # that of the next step
        add(log, progress, float(number))
    log.flush(progress)
    log.file.flush()
    assert [(line["step"], line["lr"]) for line in lines(tmp_path)] == [(1, 0.5), (2, 0.25), (3, 0.125)]


def test_a_rate_that_is_a_tensor_is_not_the_one_that_is_moved_in_place(make_log, tmp_path):
    log, progress = make_log(log_every=1), Progress()
    rate = log.optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
    log.note_lr()
    rate.fill_(0.25)
    add(log, progress, 1.0)
    log.file.flush()
    assert lines(tmp_path)[0]["lr"] == 0.5


def test_what_loggers_take_to_begin_is_no_time_of_steps(make_log, tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("brim.engine.run_log.step_log.time", clock)

    class Slow:
        def start(self, folder):
            clock.now += 100.0

        def write(self, step, epoch, numbers): ...

        def close(self): ...

    log, progress = make_log(log_every=1, loggers=Slow()), Progress()
    log.begin()
    clock.now += 0.5
    add(log, progress, 1.0)
    log.file.flush()
    assert [line["step_ms"] for line in lines(tmp_path)] == [500.0]


def test_what_reads_losses_in_between_cuts_no_window(make_log, tmp_path):
    log, progress = make_log(log_every=4), Progress(step=4)
    for loss in (1.0, 2.0, 3.0, 6.0):
        add(log, progress, loss)
        log.read(progress)  # an evaluation, a checkpoint
    log.file.flush()
    assert written(tmp_path) == [(8, 3.0)]
    assert progress.epoch_mean == 3.0


def test_the_first_steps_are_shown_before_a_whole_window_is_there(make_log, tmp_path):
    log, progress = make_log(log_every=50), Progress()
    for _ in range(100):
        add(log, progress, float(progress.step))
    log.file.flush()
    assert [step for step, _ in written(tmp_path)] == [1, 2, 4, 8, 16, 32, 50, 100]


def test_a_bad_loss_is_found_at_the_next_log_and_named_by_its_own_step(make_log):
    log, progress = make_log(log_every=4), Progress(step=4, position=16)
    add(log, progress, 1.0)
    add(log, progress, float("nan"))
    add(log, progress, float("nan"))
    with pytest.raises(BadNumbers, match=r"nan at step 6 \(epoch 1, samples 20 to 23"):
        add(log, progress, 1.0)


def test_where_reading_is_free_a_bad_loss_is_found_at_once(make_log):
    log, progress = make_log(log_every=100, device="cpu"), Progress()
    add(log, progress, 1.0)
    with pytest.raises(BadNumbers, match="inf at step 2"):
        add(log, progress, float("inf"))


def test_no_loss_is_read_between_logs(make_log, monkeypatch):
    log, progress = make_log(log_every=100), Progress(step=100)
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("read a number"))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: pytest.fail("read a number"))
    add(log, progress, 1.0)
    assert lines_pending(log) == 1


def lines_pending(log):
    return len(log._steps)
