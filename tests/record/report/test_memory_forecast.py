import pytest
from helpers.records import a_record

from brim.record.report.memory_forecast import memory_forecast, plan_of

FORECAST = {
    "reserved": 50,
    "allocated": 40,
    "limit": 80,
    "card": "H200",
    "parts": {"context": 5, "activations": 30, "x": 0},
}
PLAN = {"batch_size": 64, "micro_batch": 16, "checkpointing": False, "cache": None, "reasons": ["a"], "advice": ["b"]}


def test_the_forecast_of_the_plan_with_its_parts_the_largest_first():
    found = memory_forecast(a_record(plan={"forecast": FORECAST}))
    assert (found["reserved"], found["limit"], found["card"]) == (50, 80, "H200")
    assert list(found["parts"].items()) == [("activations", 30), ("context", 5)]


def test_a_run_that_has_no_plan_yet_told_its_forecast_when_it_began():
    events = [{"kind": "memory", "forecast": {"reserved": 1}}, {"kind": "memory", "forecast": FORECAST, "plan": PLAN}]
    found = a_record(events=[*events, {"kind": "failed"}])
    assert memory_forecast(found)["reserved"] == 50 and plan_of(found)["reasons"] == ["a"]


def test_the_plan_has_what_was_chosen_and_why():
    found = plan_of(a_record(plan={**PLAN, "forecast": FORECAST}))
    assert found["settings"] == {"batch_size": "64", "micro_batch": "16", "checkpointing": "False"}
    assert (found["reasons"], found["advice"]) == (["a"], ["b"])


@pytest.mark.parametrize(
    "told", [None, [], "x", {}, {"reserved": "many"}, {"reserved": float("nan")}, {"parts": {"a": 1}}]
)
def test_what_is_no_forecast_is_none(told):
    assert memory_forecast(a_record(plan={"forecast": told})) is None
    assert memory_forecast(a_record(events=[{"forecast": told}])) is None


@pytest.mark.parametrize("told", [{"reasons": 3}, {"forecast": FORECAST}, {"reasons": [], "batch_size": [1]}])
def test_what_is_no_plan_is_none(told):
    assert plan_of(a_record(plan=told)) is None


def test_odd_parts_and_reasons_are_texts_or_left_out():
    odd = {**FORECAST, "parts": {"a": "x", "b": None, "c": 3}, "notes": [{"d": 1}]}
    found = memory_forecast(a_record(plan={"forecast": odd}))
    assert found["parts"] == {"c": 3} and found["notes"] == ["{'d': 1}"]


@pytest.mark.parametrize(("may_fit", "shown"), [(True, "64 or more"), (False, "64")])
def test_a_micro_batch_beyond_which_nobody_looked_is_not_called_the_largest(may_fit, shown):
    told = {"largest_micro_batch": 64, "larger_may_fit": may_fit}
    assert plan_of(a_record(plan=told))["settings"] == {"largest_micro_batch": shown}
