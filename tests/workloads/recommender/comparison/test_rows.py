import torch

from brim.workloads.recommender.comparison import Interval, Row, mean_interval


def test_a_row_has_the_interval_of_each_metric_and_its_details():
    values = torch.tensor([0.0, 1.0, 0.5])
    row = Row.of("ids", {"ndcg@10": values}, "temperature 6", chosen=6.0)
    assert row.metrics == {"ndcg@10": mean_interval(values)}
    assert row.as_json()["chosen"] == 6.0
    assert row.as_json()["ndcg@10"]["mean"] == 0.5
    assert Row("a", {"x": Interval(1.0, 1.0, 1.0)}, details={"x": 1.0}).as_json() == {"x": 1.0}
