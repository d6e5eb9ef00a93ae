from brim.record.report.shown_numbers import short, since


def test_numbers_have_six_digits_and_are_never_infinite():
    assert (short(1234567.8), short(None), short(float("nan"))) == (1234570.0, None, None)


def test_seconds_count_from_the_beginning_and_are_never_negative():
    assert (since(10.0, 12.3456), since(10.0, 9.0), since(-1e308, 1e308)) == (2.35, 0.0, None)
