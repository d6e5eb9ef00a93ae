from brim.data.times import FeedTimes


def test_times_are_milliseconds_a_batch_of_the_parts_that_took_any():
    times = FeedTimes(batches=4, fetch=0.2, wait=0.001)
    assert times.take() == {"fetch": 50.0, "wait": 0.25}


def test_taking_starts_anew():
    times = FeedTimes(batches=4, fetch=1, collate=1, pin=1, copy=1, wait=1)
    assert len(times.take()) == 5
    assert times == FeedTimes()
    assert times.take() == {}


def test_time_spent_before_the_first_batch_is_not_lost():
    assert FeedTimes(fetch=0.5).take() == {"fetch": 500.0}
