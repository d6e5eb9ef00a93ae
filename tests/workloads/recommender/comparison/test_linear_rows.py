import pytest
import torch

from brim.workloads.recommender import EmbeddedDataset
from brim.workloads.recommender.comparison import ComparisonSettings, Judge, compare
from brim.workloads.recommender.comparison.judge import NDCG
from brim.workloads.recommender.comparison.linear_rows import linear_rows, solve
from brim.workloads.recommender.linear import LinearSettings


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(40, 60)


@pytest.fixture(scope="module")
def judge(dataset):
    return Judge(*(dataset.get_split_data(name) for name in ("train", "validation", "test")), "cpu")


def test_the_validation_split_chooses_for_each_model_from_the_same_settings(judge):
    encodings = torch.randn(60, 12)
    settings = ComparisonSettings(kind="linear", trials=4, seeds=1)
    rows = list(linear_rows(judge, settings, encodings, lambda sentence: None))
    assert [row.name for row in rows] == ["ids, seed 0", "text + ids, seed 0", "random + ids, seed 0"]
    for row in rows:
        trials = [{name: value for name, value in one.items() if name != "validation"} for one in row.details["tried"]]
        assert trials == [vars(LinearSettings.drawn(number)) for number in range(4)]
        best = max(row.details["tried"], key=lambda one: one["validation"])
        assert row.details["chosen"].items() <= best.items()
    text = solve(judge, "text + ids", LinearSettings(**rows[1].details["chosen"]), 0, encodings)
    assert rows[1].metrics[NDCG].mean == pytest.approx(float(judge.slices(text)[NDCG].mean()))


def test_seeds_draw_random_vectors_alone_and_the_rows_say_so(judge):
    settings = ComparisonSettings(kind="linear", trials=1, seeds=2)
    rows = list(linear_rows(judge, settings, torch.randn(60, 12), lambda sentence: None))
    assert rows[2].metrics == rows[3].metrics
    assert "the same for every seed" in rows[3].note
    assert "the same for every seed" not in rows[5].note


def test_a_comparison_can_be_of_linear_models(dataset):
    settings = ComparisonSettings(kind="linear", seeds=1).quick()
    found = compare(dataset, torch.randn(60, 12), settings)
    assert [row.name for row in found.warm[-3:]] == ["ids, seed 0", "text + ids, seed 0", "random + ids, seed 0"]
    assert [row.name for row in found.cold[2:]] == ["text + ids", "random + ids"]
    assert found.bars and found.above
