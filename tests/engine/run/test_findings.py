from types import SimpleNamespace

import pytest

from brim.engine.run.findings import Findings
from brim.engine.run_state.progress import Progress


class Notes:
    """What was reported, by the name of the report."""

    def __init__(self):
        self.said = []

    def __getattr__(self, name):
        return lambda *facts, **more: self.said.append((name, *facts, *more.items()))


class Place:
    def __init__(self):
        self.rooms = []

    def keep_on_device(self, room=None):
        self.rooms.append(room)
        return 80  # bytes that are on the device now


@pytest.fixture(params=[False, True], ids=["eager", "captured"])
def findings(request):
    return Findings(Progress(), Place(), Notes(), may_capture=request.param)


def test_what_a_shortage_found_is_kept_and_reported(findings):
    findings.shortage("memory ran out", micro_batch=4)
    assert findings.progress.micro_batch == 4
    findings.shortage("once more")  # says nothing of it: it stays
    assert findings.progress.micro_batch == 4
    findings.shortage("there is room again", micro_batch=None)
    assert findings.progress.micro_batch is None
    assert [said[:2] for said in findings.notes.said] == [
        ("shortage", "memory ran out"), ("shortage", "once more"), ("shortage", "there is room again"),
    ]  # fmt: skip


@pytest.mark.parametrize(("limit", "room"), [(1000, (400, 150)), (650, (50, 0))])
def test_data_takes_what_memory_the_step_and_its_graphs_leave(findings, limit, room):
    plan = SimpleNamespace(limit=limit, forecast=SimpleNamespace(reserved=600, captured=250))
    findings.planned(plan, "")
    assert findings.plan is plan and findings.place.rooms == [room[findings.may_capture]]
    assert findings.notes.said == [("forecast", plan, 250 if findings.may_capture else 0, 80)]
    assert findings.resident == 80


def test_without_a_forecast_data_is_placed_all_the_same_and_the_reason_is_told(findings):
    findings.planned(None, "an operator is not known")
    assert findings.plan is None and findings.place.rooms == [None]
    assert findings.notes.said == [("no_forecast", "an operator is not known")]


def test_the_number_of_threads_is_kept_for_runs_that_go_on(findings):
    findings.threads(4, {1: 0.2, 4: 0.1})
    assert findings.progress.threads == 4 and findings.notes.said == [("threads", 4, {1: 0.2, 4: 0.1})]
