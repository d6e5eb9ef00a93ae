import pytest
from helpers.records import a_record as a_run

from brim.record.curves.curve import Curve, Point
from brim.record.report.page_data import page_data
from brim.record.report.page_file import render
from brim.record.series import series_of


def test_a_long_run_makes_a_small_page_in_which_its_spike_is_seen():
    points = [Point(step, 50.0 if step == 7_777 else 1.0, 1, float(step)) for step in range(1, 20_001)]
    data = page_data(a_run(series=dict.fromkeys(("loss", "lr", "samples_per_second"), Curve.of(points))))
    loss = data["series"][0]
    assert max(loss["value"]) == 50.0
    assert {len(loss[column]) for column in ("step", "value", "epoch", "seconds")} == {len(loss["step"])}
    assert len(loss["step"]) <= 1000
    assert data["is_thinned"]
    assert len(render(data)) < 300_000


def test_time_on_the_page_counts_from_the_first_event():
    data = page_data(
        a_run(
            series={"loss": Curve.of([Point(1, 0.5, 1, 103.0)])},
            events=[{"time": 100.0, "kind": "device", "line": "cpu"}],
        )
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


@pytest.mark.parametrize(("metrics", "most"), [(20, 1000), pytest.param(300, 200, marks=pytest.mark.slow)])
def test_a_run_of_ten_thousand_steps_makes_a_page_of_less_than_three_megabytes(metrics, most):
    """With all that a run writes: five shares, memory, the feed and metrics of the user's."""
    shares = {f"share/{name}": 0.2 for name in ("data_wait", "copy", "compute", "sync", "launch")}
    feed = {f"feed/{name}_ms": 0.123456 for name in ("fetch", "collate", "pin", "copy", "wait")}
    memory = {"memory_allocated": 3 * 2**30, "memory_reserved": 4 * 2**30}

    def line(step):
        own = {f"metric {place}": (step * 7919 % 1013) / 1013 + place for place in range(metrics)}
        pace = {"loss": 1 / step, "lr": 1e-3 / step, "step_ms": 5 + step % 7 / 7, "samples_per_second": 1e5 + step % 13}
        return {"time": 1e9 + step / 7, "step": step, "epoch": step // 100, **pace, **shares, **feed, **memory, **own}

    events = [{"time": 1e9 + place, "kind": "epoch", "line": "epoch: loss 0.1234" * 4} for place in range(2000)]
    data = page_data(a_run(series=series_of(map(line, range(1, 10_001))), events=events))
    assert len(data["series"]) == metrics + 11 and max(len(one["step"]) for one in data["series"]) <= most
    assert len(render(data).encode()) < 3_000_000


def test_shares_are_no_curves_of_their_own():
    data = page_data(a_run(series=series_of([{"step": 1, "loss": 1.0, "share/compute": 1.0}])))
    assert [one["name"] for one in data["series"]] == ["loss"]
    assert data["shares"]["shares"] == {"compute": [1.0]}


@pytest.mark.parametrize(
    ("config", "share"),
    [
        ("trainer: {gradient_accumulation_steps: 4}", 0.4),
        ("trainer: {accumulate_grad_batches: 2}", 0.2),
        ("", 0.1),
        (f"trainer: {{accumulate_grad_batches: {10**400}}}", 0.1),
    ],
)
def test_the_wait_for_a_batch_counts_once_for_every_batch_of_a_step(config, share):
    data = page_data(a_run(config=config, series=series_of([{"step": 1, "feed/wait_share": 0.1}])))
    assert data["shares"]["shares"]["data_wait"] == [share] and not data["shares"]["is_measured"]


def test_a_run_without_step_times_forecast_or_plan_has_none():
    data = page_data(a_run(series=series_of([{"step": 1, "loss": 1.0}])))
    assert [data[name] for name in ("step_times", "shares", "forecast", "plan", "timeline")] == [None] * 4 + [[]]


def test_events_that_were_left_out_before_are_counted_too():
    assert page_data(a_run(events=[{"time": 1.0}], events_left_out=7))["events_left_out"] == 7


def test_the_best_of_a_run_that_goes_on_is_by_what_it_was_told_to_monitor():
    series = series_of([{"step": step, "eval/loss": 1.0 / step, "eval/beauty": float(step)} for step in (1, 2)])
    config = "trainer: {monitor: beauty, mode: min}"
    best = page_data(a_run(series=series, config=config))["key"]["best"]
    assert (best["name"], best["step"]) == ("beauty", 1)
    judged = {"monitor": "loss", "higher_is_better": False}
    assert page_data(a_run(series=series, config=config, result=judged))["key"]["best"]["name"] == "loss"
