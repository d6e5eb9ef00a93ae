from brim.record.event_list import BETWEEN, FIRST, LAST, shortened


def test_a_short_list_is_whole():
    events = [{"kind": "epoch"}] * (FIRST + LAST)
    assert shortened(events) == (events, 0)


def test_of_a_long_one_what_is_not_routine_stays_in_the_middle_too():
    events = [{"kind": "epoch", "line": str(place)} for place in range(5_000)]
    events[2_000] = {"kind": "memory", "line": "out of memory"}
    kept, left_out = shortened(events)
    assert kept == [*events[:FIRST], events[2_000], *events[-LAST:]]
    assert left_out == 5_000 - len(kept)


def test_there_is_an_end_to_what_stays_and_shortening_again_changes_nothing():
    events = [{"kind": "warning"}] * 10_000
    kept, left_out = shortened(events)
    assert len(kept) == FIRST + BETWEEN + LAST and left_out == 10_000 - len(kept)
    assert shortened(kept) == (kept, 0)


def test_events_of_any_shape_are_taken():
    assert len(shortened([{"kind": ["x"]}, {}, {"kind": None}] * 1_000)[0]) >= FIRST + LAST
