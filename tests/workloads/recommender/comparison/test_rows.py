import pytest
import torch

from brim.workloads.recommender.comparison import Interval, Row, difference_interval, mean_interval


def test_a_row_has_the_interval_of_each_metric_and_its_details():
    values = torch.tensor([0.0, 1.0, 0.5])
    row = Row.of("ids", {"ndcg@10": values}, "temperature 6", chosen=6.0)
    assert row.metrics == {"ndcg@10": mean_interval(values)}
    assert row.as_json()["chosen"] == 6.0
    assert row.as_json()["ndcg@10"]["mean"] == 0.5
    assert Row("a", {"x": Interval(1.0, 1.0, 1.0)}, details={"x": 1.0}).as_json() == {"x": 1.0}


def test_the_interval_of_a_mean_is_about_two_standard_errors_to_each_side():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0))
    interval, error = mean_interval(values), float(values.std()) / 20
    assert interval.mean == pytest.approx(float(values.mean()), abs=1e-6)
    assert interval.low == pytest.approx(interval.mean - 1.96 * error, abs=0.25 * error)
    assert interval.high == pytest.approx(interval.mean + 1.96 * error, abs=0.25 * error)
    assert interval == mean_interval(values)


def test_differences_are_taken_user_by_user():
    others = torch.randn(300, generator=torch.Generator().manual_seed(0)) * 100
    better, same = difference_interval(others + 0.01, others), difference_interval(others, others)
    assert better.low > 0
    assert same.low <= 0 <= same.high
    with pytest.raises(ValueError, match="not of the same users"):
        difference_interval(others, others[1:])
