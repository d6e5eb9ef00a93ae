import json

from brim.record.series import Point, read_lines, series_of


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
    assert series["loss"].points == [Point(1, 0.5, 1, 5.0), Point(2, 0.4, 2, 7.0)]
    assert series["eval/ndcg@10"].points == [Point(1, 0.2, 1, 6.0)]


def test_null_is_a_gap_and_text_is_no_number():
    series = series_of([{"step": 1, "loss": None, "note": "hello", "flag": True}, {"step": 2, "loss": 1}])
    assert {name: [point.value for point in curve.points] for name, curve in series.items()} == {"loss": [None, 1.0]}


def test_lines_without_a_step_are_passed_over():
    assert series_of([{"loss": 1.0}, {"step": None, "loss": 1.0}, {"step": "3", "loss": 1.0}]) == {}


def test_what_a_resumed_run_repeats_replaces_what_was_there():
    before = [{"step": step, "loss": 1.0, "eval/x": 1.0} for step in (10, 20, 30, 40)]
    after = [{"step": step, "loss": 2.0} for step in (25, 40)]
    series = series_of([*before, *after])
    assert [(point.step, point.value) for point in series["loss"].points] == [
        (10, 1.0),
        (20, 1.0),
        (25, 2.0),
        (40, 2.0),
    ]
    assert [point.step for point in series["eval/x"].points] == [10, 20]


def test_a_curve_of_which_a_run_went_back_before_the_first_point_is_none():
    assert list(series_of([{"step": 5, "loss": 1.0}, {"step": 5, "x": 1.0}, {"step": 2, "x": 1.0}])) == ["x"]


def test_more_steps_than_a_run_can_have_are_passed_over():
    assert series_of([{"step": 1e308, "loss": 1.0}, {"step": -1e300, "loss": 1.0}]) == {}


def test_a_negative_step_is_none_and_takes_no_run_back():
    series = series_of([{"step": 1, "loss": 0.5}, {"step": -3, "loss": 2.0}, {"step": 2, "loss": 0.4}])
    assert series["loss"].values == [0.5, 0.4]


def test_of_the_speed_it_is_known_how_it_is_spread():
    series = series_of([{"step": step, "step_ms": 5.0, "loss": 1.0} for step in (10, 20)])
    assert series["step_ms"].spread.steps == 20 and series["loss"].spread is None
