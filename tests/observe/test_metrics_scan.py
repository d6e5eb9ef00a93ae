import json

from hypothesis import example, given
from hypothesis import strategies as st

from brim.observe import metrics_scan
from brim.observe.metrics_scan import scan_metrics
from brim.record.series import read_lines, series_of

LINE = st.fixed_dictionaries(
    {"time": st.just(1.0), "step": st.integers(0, 9), "epoch": st.just(1)},
    optional={"loss": st.just(0.5), "eval/a": st.none() | st.floats(0, 1), "eval/b": st.just(2)},
)
BROKEN = st.sampled_from(['{"step": 3', "null", "", '{"step": "3", "eval/a": 1}', '{"eval/a": 1}', '{"step": 2.0}'])


def evaluations(series):
    return {name: curve.points for name, curve in series.items() if name.startswith("eval/")}


@example(['{"step": 2, "eval/a": 1}', '{"step": 3}', '{"step": 2}'])  # went back to before the evaluation
@example(['{"step": 2, "eval/a": 1}', '{"step": 3}', '{"step": 2, "eval/b": 1}'])
@given(st.lists(LINE.map(json.dumps) | BROKEN))
def test_evaluations_are_those_that_reading_everything_gives(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    path.write_text("\n".join(lines))
    every = series_of(read_lines(path))
    found = scan_metrics(path).evaluations
    assert evaluations(found) == evaluations(every)


def test_lines_of_steps_are_not_taken_apart(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    steps = [{"time": 1.0, "step": step, "epoch": 1, "loss": 0.5} for step in range(100)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*steps, {"step": 100, "epoch": 1, "eval/a": 3.0}]))
    taken = []
    whole = metrics_scan.json_object
    monkeypatch.setattr(metrics_scan, "json_object", lambda text: taken.append(text) or whole(text))
    found = scan_metrics(path)
    assert len(taken) == 1 and found.evaluations["eval/a"].values == [3.0]
    assert found.first["step"] == 0 and found.last["step"] == 100
