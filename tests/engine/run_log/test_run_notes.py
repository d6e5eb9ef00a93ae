import torch
from torch import nn

import brim
from brim.engine.oom.memory_parts import MemoryParts
from brim.engine.run_log.run_notes import RunNotes
from brim.record import Journal, RunFolder
from brim.record.report.memory_forecast import memory_forecast, plan_of
from brim.record.run_record import read_run
from brim.sizes import show_bytes

MIB = 1 << 20


def test_a_run_that_has_only_begun_has_its_forecast_and_its_plan_in_its_record(tmp_path):
    """Which its page shows, whether the run ends well or not: plan.json is written at the end."""
    planned = brim.plan(
        lambda: nn.Linear(64, 64), lambda n: ((torch.empty(n, 64),), {}), batch_size=32, card="NVIDIA H200"
    )
    folder, journal = RunFolder.create(tmp_path / "run"), Journal(quiet=True)
    journal.attach(folder)
    RunNotes(journal).forecast(planned, pool=0)
    journal.close()
    run = read_run(folder)
    assert run.plan == {}
    assert memory_forecast(run)["reserved"] == planned.forecast.reserved
    assert plan_of(run)["reasons"] == list(planned.reasons)
    assert plan_of(run)["settings"]["micro_batch"] == str(planned.micro_batch)


class Watched:
    """A watch on a card that reserved this much, by parts."""

    is_gpu, most_allocated = True, 200 * MIB

    def __init__(self, **parts: int) -> None:
        self.parts = MemoryParts()
        for name, size in parts.items():
            self.parts.enter(name.replace("_", " "))
            self.parts.raise_to(self.parts.peak + size)
        self.most_reserved = self.parts.peak

    def note_peak(self) -> None:
        pass


def said(tmp_path, note, kind="memory") -> tuple[str, dict]:
    folder, journal = RunFolder.create(tmp_path / "run"), Journal(quiet=True)
    journal.attach(folder)
    note(RunNotes(journal))
    journal.close()
    event = next(event for event in reversed(read_run(folder).events) if event["kind"] == kind)
    return event["line"], event


def planned() -> brim.memory.Plan:
    return brim.plan(
        lambda: nn.Linear(64, 64), lambda n: ((torch.empty(n, 64),), {}), batch_size=32, card="NVIDIA H200"
    )


def test_the_line_at_the_end_has_parts_and_a_forecast_of_the_same_things(tmp_path):
    plan = planned()
    steps = plan.forecast.reserved
    watch = Watched(steps=steps + 210 * MIB, captured_steps=90 * MIB, evaluation=120 * MIB)
    line, event = said(tmp_path, lambda notes: notes.peak(watch, plan, resident=210 * MIB))
    assert event["reserved_parts"] == {
        "steps": steps, "resident data": 210 * MIB, "captured steps": 90 * MIB, "evaluation": 120 * MIB,
    }  # fmt: skip
    assert event["expected"] == event["reserved"] == watch.most_reserved  # the steps took what was forecast
    assert "resident data 210.0 MiB, captured steps 90.0 MiB, evaluation 120.0 MiB" in line
    assert f"forecast {show_bytes(event['expected'])}, of which {show_bytes(steps)} for the steps" in line


def test_a_run_of_steps_alone_says_so_in_fewer_words(tmp_path):
    plan = planned()
    line, _ = said(tmp_path, lambda notes: notes.peak(Watched(steps=80 * MIB), plan))
    assert line.endswith(f"200.0 MiB allocated, 80.0 MiB reserved, forecast {show_bytes(plan.forecast.reserved)}")


def test_without_a_forecast_the_parts_are_told_all_the_same(tmp_path):
    line, event = said(tmp_path, lambda notes: notes.peak(Watched(steps=80 * MIB, evaluation=40 * MIB), None))
    assert line.endswith("120.0 MiB reserved (steps 80.0 MiB, evaluation 40.0 MiB)")
    assert "expected" not in event


def test_the_line_at_the_start_counts_the_data_on_the_card(tmp_path):
    plan = planned()
    line, event = said(tmp_path, lambda notes: notes.forecast(plan, 0, 210 * MIB))
    assert f"memory forecast: {show_bytes(plan.forecast.reserved + 210 * MIB)} of" in line
    assert "resident data 210.0 MiB" in line
    assert event["resident"] == 210 * MIB


def test_one_thread_is_not_called_threads(tmp_path):
    told, _ = said(tmp_path, lambda notes: notes.threads(1, {1: 0.002}), "threads")
    assert told == "computing with 1 CPU thread (a step with 1: 2.00 ms)"
