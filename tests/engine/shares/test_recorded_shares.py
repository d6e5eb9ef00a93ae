"""The shares and alerts of whole runs, on a clock that goes on only where a test says so."""

import csv
import json

import pytest
import torch
from helpers.clock import Clock
from torch import nn
from torch.utils.data import Dataset

import brim
from brim.engine.run import assembly
from brim.engine.run_log import step_log
from brim.engine.shares import recorded_shares
from brim.engine.shares.host_shares import HostShares
from brim.engine.shares.recorded_shares import host_memory, run_alerts, shares_recorder
from brim.record import Journal, RunFolder

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_log, "time", clock)
    monkeypatch.setattr(assembly, "shares_recorder", lambda device, accumulation: HostShares(True, clock.perf_counter))
    return clock


class Slow(Dataset):
    """Each sample takes a second."""

    def __init__(self, clock, samples=40, seconds=1.0):
        self.clock, self.samples, self.seconds = clock, samples, seconds

    def __len__(self):
        return self.samples

    def __getitem__(self, place):
        self.clock.sleep(self.seconds)
        return torch.full((3,), float(place)), torch.zeros(1)


def train(folder, clock, data, compute=6.0, **settings):
    def loss(model, batch):
        clock.sleep(compute)
        return model(batch[0]).square().mean()

    chosen = {"epochs": 1, "log_every": 2, "device": "cpu", "threads": 1, "run_dir": folder}
    loader = brim.Loader(data, 4, num_workers=0)
    trainer = brim.Trainer(nn.Linear(3, 1), loader, loss_fn=loss, **{**chosen, **settings})
    trainer.fit()
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def shares_of(line):
    return {name: value for name, value in line.items() if name.startswith("share/")}


def events(folder, kind):
    told = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in told if event["kind"] == kind]


def test_every_line_says_where_the_time_of_its_steps_went(tmp_path, clock):
    class Onlooker(brim.Callback):
        def on_step_start(self, trainer, step):
            clock.sleep(1.0)

        def on_step_end(self, trainer, step, loss):
            clock.sleep(1.0)

    lines = train(tmp_path / "run", clock, Slow(clock), callbacks=[Onlooker()])
    steps = [line for line in lines if "step_ms" in line]
    assert len(steps) == 6
    # Of a step 4 s are waited and 6 s computed; callbacks take 2, the last of which is of the next line.
    assert shares_of(steps[0]) == pytest.approx(
        {"share/data_wait": 4 / 11, "share/compute": 6 / 11, "share/rest": 1 / 11}, abs=1e-3
    )
    for line in steps[1:]:
        assert shares_of(line) == pytest.approx(
            {"share/data_wait": 4 / 12, "share/compute": 6 / 12, "share/rest": 2 / 12}, abs=1e-3
        )


def test_evaluations_and_checkpoints_are_no_part_of_it(tmp_path, clock):
    class Slowly(brim.Callback):
        def on_evaluate(self, trainer, metrics):
            clock.sleep(1000.0)

    settings = {"eval_every": "2 steps", "checkpoint_every": 3, "callbacks": [Slowly()]}
    lines = train(tmp_path / "run", clock, Slow(clock), eval_data=Slow(clock, 4), **settings)
    assert len(events(tmp_path / "run", "evaluation")) >= 4
    timed = [line for line in lines if "step_ms" in line]
    assert timed
    for line in timed:
        assert line["step_ms"] == 10_000
        assert shares_of(line) == {"share/data_wait": 0.4, "share/compute": 0.6, "share/rest": 0.0}


def test_a_step_of_several_batches_waits_for_all_of_them(tmp_path, clock):
    lines = train(tmp_path / "run", clock, Slow(clock), gradient_accumulation_steps=2)
    timed = [line for line in lines if "step_ms" in line]
    assert timed
    for line in timed:
        assert shares_of(line)["share/data_wait"] == pytest.approx(8 / 20)
        assert sum(shares_of(line).values()) == pytest.approx(1, abs=0.001)


def test_loggers_get_the_shares(tmp_path, clock):
    train(tmp_path / "run", clock, Slow(clock), loggers=["csv"])
    (file,) = (tmp_path / "run").glob("*.csv")
    with file.open() as opened:
        row = next(csv.DictReader(opened))
    assert {name: float(row[name]) for name in row if name.startswith("share/")} == {
        "share/data_wait": 0.4, "share/compute": 0.6, "share/rest": 0.0,
    }  # fmt: skip


def test_a_run_that_waits_for_data_says_so_once_in_its_events(tmp_path, clock):
    train(tmp_path / "run", clock, Slow(clock), log_every=1)
    (event,) = events(tmp_path / "run", "alert")
    assert event["line"].startswith("data wait: 40 % of the last 30 s") and event["command"] in event["line"]
    assert event["alert"] == "data_wait" and event["share"] == pytest.approx(0.4)


def test_a_run_that_does_not_says_nothing(tmp_path, clock):
    train(tmp_path / "run", clock, Slow(clock, seconds=0.1), log_every=1)
    assert events(tmp_path / "run", "alert") == []


def test_alerts_of_other_ranks_are_in_their_own_record_alone(tmp_path, capsys):
    journal = Journal()
    journal.attach(RunFolder.create(tmp_path / "run"))
    run_alerts(CPU, journal, is_first=False).tell("slow", alert="data_wait")
    assert capsys.readouterr().err == ""
    run_alerts(CPU, journal, is_first=True).tell("slow too", alert="data_wait")
    assert "warning: slow too" in capsys.readouterr().err
    assert [event["line"] for event in events(tmp_path / "run", "alert")] == ["slow", "slow too"]


def test_on_a_cpu_ram_is_looked_at(monkeypatch):
    use = host_memory()
    assert use is None or (0 < use.used < use.limit and use.command == "brim watch")
    monkeypatch.setattr(recorded_shares.host_reading, "usable_memory", lambda: (None, None, False))
    assert host_memory() is None
    monkeypatch.setattr(recorded_shares.host_reading, "usable_memory", lambda: (97, 100, True))
    assert (host_memory().share, host_memory().where) == (0.97, "of the cgroup's RAM")


@pytest.mark.parametrize(("device", "computes_here"), [("cpu", True), ("mps", False)])
def test_without_a_gpu_the_clock_of_the_host_is_all_there_is(device, computes_here):
    assert shares_recorder(torch.device(device), 1).computes_here == computes_here
