import pytest
from helpers.records import a_record

from brim.record.report.time_shares import time_shares
from brim.record.run_record import with_wait_share
from brim.record.series import series_of

FIVE = {"data_wait": 0.1, "copy": 0.05, "compute": 0.7, "sync": 0.05, "launch": 0.1}


def run_of(lines):
    return a_record(series=series_of(map(with_wait_share, lines)))


def test_recorded_shares_lie_on_each_other_with_what_is_lost_below():
    lines = [{"step": step, "step_ms": 10.0, "feed/wait_ms": 9.0, **{f"share/{k}": v for k, v in FIVE.items()}}
             for step in (1, 2)]  # fmt: skip
    found = time_shares(run_of(lines), 1)
    assert found["is_measured"] and found["step"] == [1, 2]
    assert list(found["shares"]) == ["data_wait", "copy", "sync", "launch", "compute"]
    assert {name: values[0] for name, values in found["shares"].items()} == FIVE


def test_on_a_cpu_everything_else_lies_below_computing():
    line = {"step": 1, "share/compute": 0.7, "share/rest": 0.1, "share/data_wait": 0.2}
    assert list(time_shares(run_of([line]), 1)["shares"]) == ["data_wait", "rest", "compute"]


def test_shares_of_a_long_run_are_means_that_still_add_up():
    lines = [{"step": step, "share/data_wait": step % 2, "share/compute": 1 - step % 2} for step in range(1, 10_001)]
    found = time_shares(run_of(lines), 1)
    assert len(found["step"]) <= 200
    sums = [sum(values) for values in zip(*found["shares"].values(), strict=True)]
    assert sums == pytest.approx([1.0] * len(sums)) and found["shares"]["compute"][5] == pytest.approx(0.5, abs=0.05)


def test_a_share_that_nobody_knows_is_shown_too():
    assert list(time_shares(run_of([{"step": 1, "share/x": 0.5, "share/copy": 0.5}]), 1)["shares"]) == ["copy", "x"]


def test_without_them_the_data_wait_is_worked_out_and_the_rest_is_the_rest():
    lines = [{"step": 1, "step_ms": 10.0, "feed/wait_ms": 2.0}, {"step": 2, "step_ms": 10.0, "feed/fetch_ms": 1.0}]
    found = time_shares(run_of(lines), 1)
    assert not found["is_measured"]
    assert found["shares"] == {"data_wait": [0.2, 0.0], "rest": [0.8, 1.0]}  # a line without a wait waited for nothing


def test_more_waiting_than_time_is_all_of_the_time():
    lines = [{"step": 1, "step_ms": 1.0, "feed/wait_ms": 2.0}]
    assert time_shares(run_of(lines), 4)["shares"] == {"data_wait": [1.0], "rest": [0.0]}


@pytest.mark.parametrize("line", [{"loss": 1.0}, {"step_ms": 5.0}, {"feed/wait_ms": 5.0}, {"step_ms": 0, "feed/a": 1}])
def test_a_run_that_does_not_tell_has_no_shares(line):
    assert time_shares(run_of([{"step": 1, **line}]), 1) is None
