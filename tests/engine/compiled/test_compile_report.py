from brim.engine.compiled.compile_report import CompileReport, decided, why_not_tried


def decision(eager, compiled, left):
    return decided(CompileReport(eager_seconds=eager, compiled_seconds=compiled, seconds=10.0, steps_left=left))


def test_a_short_run_does_not_try():
    assert "100 steps are left" in why_not_tried(0.01, 100, 1.0)
    assert why_not_tried(0.1, 10_000, 1.0) is None


def test_a_run_of_unknown_length_tries_once_it_has_lasted():
    assert "nobody knows" in why_not_tried(0.1, None, 1.0)
    assert why_not_tried(0.1, None, 100.0) is None


def test_what_is_faster_is_used_and_its_price_is_said():
    reason, is_used = decision(0.2, 0.1, 1000)
    assert is_used
    assert "100 of the 1,000 steps left pay for" in reason
    assert "do not pay for" in decision(0.2, 0.1, 50)[0]
    assert decision(0.2, 0.1, None) == (reason.replace(" of the 1,000 steps left", " steps"), True)


def test_what_is_no_faster_is_not_used():
    assert not decision(0.1, 0.1, 1000)[1]
    assert not decision(0.1, 0.2, 1000)[1]
    assert "gains nothing" in decision(0.1, 0.1, 1000)[0]
