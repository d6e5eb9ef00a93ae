import pytest

from brim.record.words import MOST_METRICS, metrics_line, show_seconds


def test_many_metrics_are_cut():
    metrics = {f"m{number}": 0.5 for number in range(MOST_METRICS + 2)}
    assert metrics_line("", metrics).endswith(f"m{MOST_METRICS - 1} 0.5000 and 2 more")
    assert metrics_line("done", {}) == "done"


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_line_has_as_many_metrics_as_fit_into_the_terminal(columns):
    metrics = {f"recall@{number}": 0.5 for number in range(10)}
    line = metrics_line("epoch 1: loss 0.6517, eval ", metrics, " (best so far), 3.9 s", columns)
    assert len(line) <= columns < len(line) + len("recall@9 0.5000, ")
    assert line.endswith(" more (best so far), 3.9 s") or columns == 200


def test_a_line_has_one_metric_at_least():
    assert metrics_line("eval ", {"loss": 0.5, "f1": 0.5}, columns=10) == "eval loss 0.5000 and 1 more"


def test_durations():
    assert [show_seconds(s) for s in (0.0, 0.5, 59.96, 60, 3599, 3600, 90061)] == [
        "0 s", "0.5 s", "60.0 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "25 h 01 min",
    ]  # fmt: skip
