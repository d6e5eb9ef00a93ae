import json

from hypothesis import given
from hypothesis import strategies as st

from brim.record.series import Point, read_lines, series_of, thin, trend


def points_of(values):
    return [Point(step, value, 1, float(step)) for step, value in enumerate(values)]


def test_a_missing_file_has_no_lines(tmp_path):
    assert read_lines(tmp_path / "metrics.jsonl") == []


def test_a_half_written_last_line_is_passed_over(tmp_path):
    file = tmp_path / "metrics.jsonl"
    whole = json.dumps({"step": 1, "name": "é"}) + "\n"
    for cut in (b'{"step": 2, "lo', b"{", b'{"name": "\xc3', b"2", b"null"):
        file.write_bytes(whole.encode() + cut)
        assert read_lines(file) == [{"step": 1, "name": "é"}]


def test_each_number_becomes_a_curve_in_the_order_of_first_appearance():
    series = series_of(
        [
            {"time": 5.0, "step": 1, "epoch": 1, "loss": 0.5, "lr": 0.1},
            {"time": 6.0, "step": 1, "epoch": 1, "eval/ndcg@10": 0.2},
            {"time": 7.0, "step": 2, "epoch": 2, "loss": 0.4},
        ]
    )
    assert list(series) == ["loss", "lr", "eval/ndcg@10"]
    assert series["loss"] == [Point(1, 0.5, 1, 5.0), Point(2, 0.4, 2, 7.0)]
    assert series["eval/ndcg@10"] == [Point(1, 0.2, 1, 6.0)]


def test_null_is_a_gap_and_text_is_no_number():
    series = series_of([{"step": 1, "loss": None, "note": "hello", "flag": True}, {"step": 2, "loss": 1}])
    assert {name: [point.value for point in points] for name, points in series.items()} == {"loss": [None, 1.0]}


def test_lines_without_a_step_are_passed_over():
    assert series_of([{"loss": 1.0}, {"step": None, "loss": 1.0}, {"step": "3", "loss": 1.0}]) == {}


def test_what_a_resumed_run_repeats_replaces_what_was_there():
    before = [{"step": step, "loss": 1.0, "eval/x": 1.0} for step in (10, 20, 30, 40)]
    after = [{"step": step, "loss": 2.0} for step in (25, 40)]
    series = series_of([*before, *after])
    assert [(point.step, point.value) for point in series["loss"]] == [(10, 1.0), (20, 1.0), (25, 2.0), (40, 2.0)]
    assert [point.step for point in series["eval/x"]] == [10, 20]


@given(
    values=st.lists(st.none() | st.floats(-1e9, 1e9), min_size=1, max_size=400),
    limit=st.integers(min_value=10, max_value=100),
)
def test_thinning_keeps_the_ends_the_extremes_a_gap_and_the_order_within_the_limit(values, limit):
    points = points_of(values)
    kept = thin(points, limit)
    numbers = [value for value in values if value is not None]
    kept_numbers = [point.value for point in kept if point.value is not None]
    assert len(kept) <= limit
    assert set(kept) <= set(points)
    assert [point.step for point in kept] == sorted({point.step for point in kept})
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert (min(kept_numbers, default=None), max(kept_numbers, default=None)) == (
        min(numbers, default=None),
        max(numbers, default=None),
    )
    assert (None in values) == any(point.value is None for point in kept)


def test_every_single_spike_survives_thinning():
    spikes = {1_003: 9.0, 7_777: -4.0, 19_998: 5.0}
    kept = thin(points_of([spikes.get(step, 1.0) for step in range(20_000)]))
    assert {point.step: point.value for point in kept if point.value != 1.0} == spikes


def test_the_trend_of_noise_around_a_line_is_the_line():
    course = trend(points_of([step + (0.5 if step % 2 else -0.5) for step in range(3_000)]), count=100)
    assert len(course) == 100
    assert all(abs(step - value) < 0.05 for step, value in course)


def test_the_trend_passes_over_gaps_and_short_curves_have_none():
    assert trend(points_of([1.0, 2.0, 3.0]), count=2) == []
    assert trend(points_of([1.0, None, 1.0, None, 3.0, 3.0]), count=2) == [(1.0, 1.0), (4.5, 3.0)]
