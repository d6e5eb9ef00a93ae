from brim.record.words import MOST_METRICS, show_metrics, show_seconds


def test_many_metrics_are_cut():
    metrics = {f"m{number}": 0.5 for number in range(MOST_METRICS + 2)}
    assert show_metrics(metrics).endswith("m5 0.5000 and 2 more")
    assert show_metrics({}) == ""


def test_durations():
    assert [show_seconds(s) for s in (0.0, 0.5, 59.96, 60, 3599, 3600, 90061)] == [
        "0 s", "0.5 s", "60.0 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "25 h 01 min",
    ]  # fmt: skip
