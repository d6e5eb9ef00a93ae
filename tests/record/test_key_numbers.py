import pytest

from brim.record.curves.curve import Curve, Point
from brim.record.key_numbers import ended_at, is_higher_better, key_numbers, started_at


def curve(*values):
    return Curve.of(Point(10 * (i + 1), value, i + 1, 100.0 + i) for i, value in enumerate(values))


def test_a_run_without_numbers_has_no_key_numbers():
    assert set(key_numbers({}, [], {}).values()) == {None}
    assert started_at({}, []) == ended_at({}, []) == 0.0


def test_what_the_result_says_goes_before_what_the_metrics_say():
    series = {"loss": curve(1.0, 0.5)}
    from_metrics = key_numbers(series, [{"time": 97.5}], {})
    assert (from_metrics["steps"], from_metrics["epochs"], from_metrics["seconds"]) == (20, 2, 3.5)
    told = key_numbers(series, [], {"steps": 21, "epochs": 3, "seconds": 9.0})
    assert (told["steps"], told["epochs"], told["seconds"]) == (21, 3, 9.0)


def test_the_run_started_with_its_first_event_or_number():
    assert started_at({"loss": curve(1.0)}, [{"time": 99.0}, {"time": 140.0}, {"line": "no time"}]) == 99.0
    assert started_at({"loss": curve(1.0)}, []) == 100.0
    assert ended_at({"loss": curve(1.0)}, [{"time": 99.0}, {"time": 140.0}]) == 140.0


def test_the_best_evaluation_is_by_ndcg_unless_the_result_names_another_metric():
    series = {"eval/recall@10": curve(0.1, 0.9), "eval/ndcg@10": curve(0.3, None, 0.2)}
    assert key_numbers(series, [], {})["best"] == {"name": "ndcg@10", "value": 0.3, "step": 10, "epoch": 1}
    assert key_numbers(series, [], {"monitor": "recall@10"})["best"]["value"] == 0.9
    assert key_numbers(series, [], {"monitor": "unknown"})["best"]["name"] == "ndcg@10"


def test_the_best_of_an_error_is_its_lowest_value_unless_the_result_says_otherwise():
    series = {"eval/loss": curve(0.5, 0.2, 0.4)}
    assert key_numbers(series, [], {})["best"]["value"] == 0.2
    assert key_numbers(series, [], {"higher_is_better": True})["best"]["value"] == 0.5


@pytest.mark.parametrize(("name", "best"), [("nll", 0.2), ("noisy/loss_1", 0.2), ("accuracy", 0.5), ("beauty", 0.5)])
def test_the_best_of_a_metric_is_told_by_its_name(name, best):
    assert key_numbers({f"eval/{name}": curve(0.5, 0.2, 0.4)}, [], {})["best"]["value"] == best


def test_speed_is_the_median_and_memory_the_peak_of_all_kinds():
    series = {
        "samples_per_second": curve(1.0, 100.0, 110.0, None),
        "memory_allocated": curve(5, 7),
        "memory_reserved": curve(9, None, 8),
        "memory_process": curve(None),
    }
    key = key_numbers(series, [], {})
    assert key["samples_per_second"] == 100.0
    assert key["peak_memory"] == {"name": "reserved", "bytes": 9}


@pytest.mark.parametrize(
    ("name", "higher"),
    [
        ("accuracy", True), ("val_acc", True), ("clean/f1", True), ("ndcg@10", True), ("MulticlassAUROC", None),
        ("MAE", False), ("lossless", None), ("accuracy_loss", None),
        ("loss", False), ("noisy/loss", False), ("rmse@24", False), ("kl", False), ("style", None), ("", None),
    ],
)  # fmt: skip
def test_the_direction_is_told_by_the_words_of_a_name(name, higher):
    assert is_higher_better(name) is higher
