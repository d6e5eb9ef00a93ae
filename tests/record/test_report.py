import json
import re

import pytest

from brim.record import RunFolder, write_report
from brim.record.report import page_data, render
from brim.record.run_record import RunRecord, read_run
from brim.record.series import Point


def a_run(**parts):
    empty = {"name": "r", "config": "", "model": {}, "series": {}, "events": [], "machine": {}, "result": {}}
    return RunRecord(**{**empty, **parts})


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>', html, re.S)[1])


def test_the_report_of_an_empty_run_is_written(tmp_path):
    path = write_report(RunFolder.create(tmp_path / "mine"))
    assert path == tmp_path / "mine" / "report.html"
    data = data_of(path.read_text())
    assert (data["name"], data["ended"], data["series"], data["events"]) == ("mine", "unfinished", [], [])


def test_the_page_holds_what_page_data_says_whatever_the_texts_are(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.write("config.yaml", "a: '</script><!-- <script> {{style}} \\g<0> \u2028 é'\n")
    data = page_data(read_run(folder))
    assert "{{style}}" in data["config"]
    html = write_report(folder).read_text()
    assert data_of(html) == data
    assert html.count("</script>") == 2


def test_a_report_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path):
    folder = RunFolder.create(tmp_path)
    write_report(folder)
    folder.write("metrics.jsonl", '{"step": 1, "epoch": 1, "loss": 0.5}\n')
    assert data_of(write_report(folder).read_text())["series"][0]["value"] == [0.5]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoints", "metrics.jsonl", "report.html"]


def test_the_page_names_nothing_outside_itself():
    html = render(page_data(a_run()))
    assert not re.search(r"""(src|href)=["'](?!data:)""", html)
    assert "default-src 'none'" in html
    assert "@import" not in html and "url(" not in html


def test_a_long_run_makes_a_small_page_in_which_its_spike_is_seen():
    points = [Point(step, 50.0 if step == 7_777 else 1.0, 1, float(step)) for step in range(1, 20_001)]
    data = page_data(a_run(series=dict.fromkeys(("loss", "lr", "samples_per_second"), points)))
    loss = data["series"][0]
    assert max(loss["value"]) == 50.0
    assert {len(loss[column]) for column in ("step", "value", "epoch", "seconds")} == {len(loss["step"])}
    assert len(loss["step"]) <= 1000
    assert len(render(data)) < 300_000


def test_time_on_the_page_counts_from_the_first_event():
    data = page_data(
        a_run(series={"loss": [Point(1, 0.5, 1, 103.0)]}, events=[{"time": 100.0, "kind": "device", "line": "cpu"}])
    )
    assert data["started"] == 100.0
    assert data["series"][0]["seconds"] == [3.0]
    assert data["events"] == [{"seconds": 0.0, "kind": "device", "line": "cpu"}]


def test_an_event_without_its_usual_parts_is_still_shown():
    assert page_data(a_run(events=[{"x": 1}]))["events"] == [{"seconds": None, "kind": "note", "line": ""}]


def test_of_very_many_events_the_beginning_and_the_end_are_shown():
    data = page_data(a_run(events=[{"time": 1.0, "line": str(number)} for number in range(1500)]))
    lines = [event["line"] for event in data["events"]]
    assert lines == [str(number) for number in [*range(200), *range(700, 1500)]]
    assert data["events_left_out"] == 500


def test_test_metrics_stand_beside_the_baselines():
    table = {"BPR": {"ndcg@10": 0.2, "loss": 0.1, "bad": None}, "popularity": {"ndcg@10": 0.1}, "nothing": {}}
    data = page_data(a_run(result={"metrics": {"ndcg@10": 0.2}, "table": table}))
    assert data["table"] == {"BPR": {"ndcg@10": 0.2, "loss": 0.1}, "popularity": {"ndcg@10": 0.1}}
    assert data["lower_is_better"] == ["loss"]


def test_without_baselines_the_metrics_stand_under_the_name_of_the_model():
    assert page_data(a_run(model={"model": "BPR"}, result={"metrics": {"mae": 1}}))["table"] == {"BPR": {"mae": 1.0}}
    assert page_data(a_run(result={"table": [1], "metrics": 3}))["table"] == {}


def test_how_the_run_ended_comes_from_the_result_or_from_the_last_event():
    failed = [{"kind": "failed", "line": "ended with an error"}]
    assert page_data(a_run(result={"ended": "done"}, events=failed))["ended"] == "done"
    assert page_data(a_run(events=failed))["ended"] == "failed"
    assert page_data(a_run(events=[*failed, {"kind": "resume"}]))["ended"] == "unfinished"
    stopped = {"kind": "interrupted", "line": "stopped", "by": "SIGTERM"}
    assert page_data(a_run(events=[*failed, stopped]))["ended"] == "by SIGTERM"
    assert page_data(a_run(events=[{**stopped, "by": [[]]}]))["ended"] == "by a signal"


def test_the_workload_is_read_from_the_configuration_if_it_has_one():
    assert page_data(a_run(config="workload: recommender\n"))["workload"] == "recommender"
    for other in ("", "trainer: {lr: 1}", "[1]", "a: [", "a: !!python/none x", "workload: [1]", "\x00"):
        assert page_data(a_run(config=other))["workload"] == ""


def test_facts_about_the_machine_are_text():
    machine = {"gpu": "H200", "cores": 16, "gpus": ["a", "b"], "mps": False}
    assert page_data(a_run(machine=machine))["machine"] == {
        "gpu": "H200", "cores": "16", "gpus": "a, b", "mps": "false"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("result", "title"),
    [
        ({"metrics": {"loss": 1.0}, "metrics_of": "validation"}, "Validation"),
        ({"metrics": {"loss": 1.0}, "metrics_of": "test"}, "Test"),
        ({"metrics": {"loss": 1.0}, "table": {"a": {"loss": 1.0}}}, "Test"),
        ({"metrics": {"loss": 1.0}}, "Metrics"),  # a run of an earlier version does not say
        ({"metrics": {"loss": 1.0}, "metrics_of": ["x"]}, "Metrics"),
    ],
)
def test_the_table_says_which_data_its_metrics_are_of(result, title):
    assert page_data(a_run(result=result))["table_title"] == title
