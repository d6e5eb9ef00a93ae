"""Whether capturing pays, by made-up numbers."""

import pytest

from brim.engine.captured.payoff.decision import (
    BUSY,
    NEVER,
    TRY,
    WAIT,
    Attempts,
    Pace,
    cost_of,
    decide,
    least_used,
    steps_expected,
    was_wasted,
)

IDLE = Pace(0.002, 0.05)  # a small LSTM: 2 ms a step


@pytest.mark.parametrize(
    ("pace", "left", "verdict"),
    [
        (IDLE, 80, NEVER),  # 0.16 s are left, and an attempt takes 0.4 s or more
        (IDLE, 280, NEVER),
        (IDLE, 320, TRY),
        (IDLE, 1_000_000, TRY),
        (IDLE, None, TRY),
        (Pace(0.057, 0.98), 1_000_000, NEVER),  # GPT-2: the host is ahead by a step
        (Pace(0.057, 0.98), None, NEVER),
        (Pace(0.028, 0.25), 100, NEVER),  # BERT: 2.1 s could be saved, and 2.6 s are spent
        (Pace(0.028, 0.25), 200, TRY),
        (Pace(0.028, 0.6), 40, NEVER),  # 0.4 s could be
        (IDLE, 0, NEVER),
    ],
)
def test_one_shape_is_tried_where_the_steps_that_are_left_can_earn_it_back(pace, left, verdict):
    expected = steps_expected(3, 3, left)
    decision = decide(pace, left, expected)
    assert decision.verdict == verdict
    assert bool(decision.reason) == (verdict != TRY)


def test_reasons_have_their_numbers():
    assert decide(IDLE, 80, 80).reason == (
        "capturing takes some 0.6 s, and the 80 steps that are left would save 0.15 s at most"
    )
    assert "computes for 98 % of the 57.0 ms of a step" in decide(Pace(0.057, 0.98), 100, 100).reason
    assert decide(IDLE, 0, 0).reason == "no steps are left to earn it back"


def test_a_share_below_the_limit_is_no_reason_by_itself():
    assert decide(Pace(0.05, BUSY - 0.01), 100_000, 100_000).verdict == TRY
    assert decide(Pace(0.05, BUSY), 100_000, 100_000).verdict == NEVER


def test_a_measured_gain_counts_and_not_how_busy_the_device_seemed():
    found = Attempts(seconds=1.0, saved=0.01)
    assert decide(Pace(0.05, 1.0), 1000, 1000, found).verdict == TRY
    assert decide(Pace(0.05, 0.0), 99, 99, found).verdict == NEVER


@pytest.mark.parametrize(("seen", "of", "left", "verdict"), [
    (1, 4, 2_000, TRY),  # 500 steps of 2 ms
    (1, 4, 800, WAIT),  # 200
    (1, 100, 10_000, WAIT),
    (3, 100, 10_000, TRY),
])  # fmt: skip
def test_a_shape_is_tried_where_its_own_steps_can_earn_it_back(seen, of, left, verdict):
    assert decide(IDLE, left, steps_expected(seen, of, left)).verdict == verdict


def test_where_the_end_is_unknown_another_shape_has_to_have_come_as_often_as_it_must_come_again():
    found = Attempts(seconds=0.5, saved=0.001)
    assert decide(IDLE, None, steps_expected(499, 2_000, None), found).verdict == WAIT
    assert decide(IDLE, None, steps_expected(501, 2_000, None), found).verdict == TRY


def test_an_attempt_costs_what_the_last_one_took():
    assert cost_of(IDLE, Attempts(seconds=1.25)) == 1.25
    assert 0.5 < cost_of(IDLE, Attempts()) < 0.6


def test_the_shape_that_came_least_often_makes_way():
    assert least_used({"a": 0, "b": 0}, {"a": 2, "b": 9}) == "a"
    assert least_used({"a": 0, "b": 0}, {"a": 2}) == "b"


def test_graphs_are_wasted_that_saved_less_than_they_cost():
    assert was_wasted(99, Attempts(1.0, 0.01)) and not was_wasted(100, Attempts(1.0, 0.01))
    assert not was_wasted(0, Attempts())  # nothing is known
