import json

import pytest
import torch

from brim.workloads.recommender import EmbeddedDataset
from brim.workloads.recommender.comparison import ComparisonSettings, Interval, Judge, Row, compare
from brim.workloads.recommender.comparison.judge import NDCG, RARE
from brim.workloads.recommender.comparison.side_by_side import PUBLISHED, bars_of, published_row
from brim.workloads.recommender.dataset import Movie

WARM = ["popularity", "EASE 250", "EASE tuned", PUBLISHED, "ids, seed 0", "text + ids, seed 0", "random + ids, seed 0"]
COLD = ["popularity of genres", "taste for genres", "text + ids", "random + ids"]


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(40, 60)


def test_every_model_is_a_row_told_when_it_is_there(dataset):
    settings = ComparisonSettings(seeds=1, epochs=1, embed_dim=8, temperatures=(5.0, 6.0))
    told, rows, encodings = [], [], torch.randn(60, 12)
    found = compare(dataset, encodings, settings, told.append, lambda part, row, _: rows.append((part, row.name)))
    assert [row.name for row in found.warm] == WARM
    assert [row.name for row in found.cold] == COLD
    assert rows == [("warm", name) for name in WARM] + [("cold", name) for name in COLD]
    assert "held-out items: text + ids, seed 0, temperature 6: epoch 1 of at most 1" in told
    text = found.warm[5]
    tried = text.details["tried"]
    assert set(tried) == {5.0, 6.0}
    assert tried[text.details["chosen"]]["validation"] == max(one["validation"] for one in tried.values())
    assert tried[text.details["chosen"]][NDCG] == pytest.approx(text.metrics[NDCG].mean)
    assert set(found.above) == set(COLD[:2])
    assert list(json.loads(json.dumps(found.as_json()))) == ["warm", "bars", "cold"]


def test_items_without_genres_are_compared_with_no_row_of_genres():
    dataset, told = EmbeddedDataset(40, 60), []
    dataset.movies = [Movie(movie.title, ()) for movie in dataset.movies]
    settings = ComparisonSettings(kind="linear", parts=("cold",)).quick()
    found = compare(dataset, torch.randn(60, 12), settings, told.append)
    assert [row.name for row in found.cold] == COLD[2:]
    assert "held-out items: none has a genre, so there is no row of genres" in told
    assert found.above == {}


def test_a_part_or_a_model_can_be_left_out(dataset):
    settings = ComparisonSettings(models=("ids",), parts=("warm",), seeds=1, epochs=1, embed_dim=8)
    found = compare(dataset, torch.randn(60, 12), settings.quick())
    assert [row.name for row in found.warm] == WARM[:5]
    assert (found.cold, found.bars) == ([], {})


def test_the_published_row_says_that_it_is_of_other_pairs(dataset):
    row = published_row(Judge(*(dataset.get_split_data(name) for name in ("train", "validation", "test")), "cpu"))
    assert row.metrics[NDCG].mean == 0.2538
    assert row.note == "as published for MovieLens-1M, not for these pairs"
    assert row.as_json() == {NDCG: 0.2538, "recall@10": 0.1861, "same split": False}


def row(name, ndcg, rare):
    return Row(name, {NDCG: Interval(ndcg, ndcg, ndcg), RARE: Interval(rare, rare, rare)})


def test_bars_are_met_in_every_seed_or_not():
    rows = [row("EASE 250", 0.3, 0), row("EASE tuned", 0.5, 0)]
    for seed, (text, ids, control) in enumerate(((0.4, 0.3, 0.2), (0.6, 0.7, 0.3))):
        rows += [row(f"text + ids, seed {seed}", text, 0.03), row(f"ids, seed {seed}", ids, 0.02)]
        rows += [row(f"random + ids, seed {seed}", control, 0.01)]
    bars = bars_of(rows, 2)
    assert [bars[name] for name in bars if name.startswith("above")] == [True, False, False, True]
    assert bars["rare, text to ids"] == pytest.approx(1.5)
    assert bars_of(rows[:-1], 2) == {}
    assert "rare, text to ids" not in bars_of([row(one.name, 0.1, 0.0) for one in rows], 2)
