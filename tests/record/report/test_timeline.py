import pytest

from brim.record.report.timeline import MOST_EVALUATIONS, lane_of, timeline
from brim.record.run_record import Checkpoint


@pytest.mark.parametrize(
    ("event", "lane"),
    [
        ({"kind": "memory", "line": "out of memory in the backward"}, "out of memory"),
        ({"kind": "memory", "line": "memory forecast: 3 GiB"}, None),
        ({"kind": "resume"}, "starts and ends"),
        ({"kind": "alert"}, "alerts and warnings"),
        ({"kind": "interrupted"}, "broken off"),
        ({"kind": "failed"}, "broken off"),
        ({"kind": "end"}, "starts and ends"),
        ({"kind": "epoch"}, "epochs, evaluations"),
        ({"kind": "schedule"}, None),
        ({"kind": ["x"]}, None),
        ({}, None),
    ],
)
def test_each_event_of_a_course_has_its_lane(event, lane):
    assert lane_of(event) == lane


def test_marks_are_in_the_order_of_time_and_lanes_without_marks_are_left_out():
    events = [
        {"kind": "failed", "time": 9.0, "line": "b"},
        {"kind": "interrupted", "time": 7.0, "line": "a"},
        {"kind": "end"},
    ]
    assert timeline(events, [], 5.0, 9.0) == [
        {"lane": "broken off", "marks": [{"seconds": 2.0, "line": "a"}, {"seconds": 4.0, "line": "b"}]}
    ]


def test_checkpoints_that_are_kept_are_marked_unless_their_files_were_copied_later():
    kept = [Checkpoint(1_000, 6.0), Checkpoint(2_000, 8.0), Checkpoint(3_000, 1e9)]
    (lane,) = timeline([], kept, 5.0, 9.0)
    assert [mark["line"] for mark in lane["marks"]] == ["checkpoint of step 1,000", "checkpoint of step 2,000"]


def test_of_very_many_evaluations_the_last_ones_are_marked():
    events = [{"kind": "evaluation", "time": float(place), "line": str(place)} for place in range(1000)]
    (lane,) = timeline(events, [], 0.0, 1000.0)
    assert len(lane["marks"]) == MOST_EVALUATIONS and lane["marks"][-1]["line"] == "999"
