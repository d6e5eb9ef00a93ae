"""A rung in words."""

import pytest

from brim.frontier.rung import Costed, Rung


def test_a_rung_says_what_it_does_and_what_it_costs():
    rung = Rung(16, 4, ("h.0", "h.1"), 12, "chunked", True)
    assert Costed(rung, 1, 1.2, 1.0).sentence == (
        "micro-batch 16, 2 of 12 blocks recomputed, logits in chunks, expandable segments: +20 % step time"
    )


@pytest.mark.parametrize(
    ("seconds", "cost"), [(1.0, "+0 % step time"), (0.9, "-10 % step time"), (3.0, "+200 % step time")]
)
def test_the_cost_is_told_beside_the_plain_step(seconds, cost):
    assert Costed(Rung(8, 1), 1, seconds, 1.0).cost == cost


def test_it_is_plain_data():
    made = Costed(Rung(16, 4, ("h.0",), 12), 1 << 30, 0.5, 0.4, False).as_json()
    assert made["recomputed"] == ["h.0"]
    assert (made["step_ms"], made["fits"], made["reserved"]) == (500.0, False, 1 << 30)
