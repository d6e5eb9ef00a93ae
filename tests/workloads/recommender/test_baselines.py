import os
from pathlib import Path

import numpy as np
import pytest
import torch

from brim.workloads.recommender import EASE, EvalDataLoader, Interactions, ML1MDataset, Popularity


def random_interactions(n_users=12, n_items=7):
    known = torch.rand(n_users, n_items, generator=torch.Generator().manual_seed(0)) < 0.4
    known[0] = False  # someone without a pair
    users, items = known.nonzero(as_tuple=True)
    return Interactions(users, items, n_users, n_items)


def ease_by_regression(history, regularisation):
    """Each item's column of weights by a ridge regression of its own, in which it may not explain itself."""
    n_items = history.shape[1]
    weights = np.zeros((n_items, n_items))
    for item in range(n_items):
        others = [other for other in range(n_items) if other != item]
        x = history[:, others]
        gram = x.T @ x + regularisation * np.eye(n_items - 1)
        weights[others, item] = np.linalg.solve(gram, x.T @ history[:, item])
    return weights


def as_matrix(data):
    history = np.zeros((data.n_users, data.n_items))
    for user, item in zip(data.users.tolist(), data.items.tolist(), strict=True):
        history[user, item] = 1
    return history


@pytest.mark.parametrize("regularisation", [0.5, 10.0, 250.0])
def test_eases_weights_are_those_of_one_ridge_regression_per_item(regularisation):
    data = random_interactions()
    expected = ease_by_regression(as_matrix(data), regularisation)
    weights = EASE(data, regularisation).weights
    np.testing.assert_allclose(weights.numpy(), expected, atol=1e-6)
    assert weights.diagonal().tolist() == [0.0] * 7


def test_eases_weights_are_the_closed_form():
    data = random_interactions()
    history = as_matrix(data)
    inverse = np.linalg.inv(history.T @ history + 3.0 * np.eye(7))
    expected = np.eye(7) - inverse / np.diag(inverse)
    np.testing.assert_allclose(EASE(data, 3.0).weights.numpy(), expected, atol=1e-6)


def test_eases_scores_are_the_sum_of_the_weights_of_a_users_items():
    data = random_interactions()
    model = EASE(data, 2.0)
    scores = model.full_scores(torch.tensor([5, 0, 5]))
    expected = sum(model.weights[item] for item in data.items[data.users == 5])
    torch.testing.assert_close(scores, torch.stack([expected, torch.zeros(7), expected]))


def test_a_pair_that_occurs_twice_is_one_to_ease():
    data = random_interactions()
    twice = Interactions(data.users.repeat(2), data.items.repeat(2), data.n_users, data.n_items)
    assert torch.equal(EASE(twice).weights, EASE(data).weights)


def test_popularity_scores_items_by_how_often_they_occur_for_everybody_alike():
    data = Interactions(torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 3, 3]), n_users=3, n_items=5)
    scores = Popularity(data).full_scores(torch.tensor([2, 0]))
    assert scores.tolist() == [[0, 2, 0, 2, 0]] * 2


def test_popularity_keeps_its_counts_when_its_scores_are_changed():
    model = Popularity(Interactions(torch.tensor([0]), torch.tensor([1]), n_users=1, n_items=2))
    model.full_scores(torch.tensor([0])).fill_(-1)
    assert model.counts.tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.skipif("BRIM_TEST_DATA" not in os.environ, reason="needs MovieLens-1M in the folder of BRIM_TEST_DATA")
def test_ease_ranks_movielens_1m_as_well_as_ever():
    folder = Path(os.environ["BRIM_TEST_DATA"]) / "ml-1m"
    dataset = ML1MDataset(folder, split_files=folder / "recbole_split_ge3")
    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    metrics = EvalDataLoader(test, train, device="cpu", also_mask=validation).evaluate(EASE(train, 250.0))
    expected = {"recall@10": 0.2094, "ndcg@10": 0.2767, "recall@20": 0.3072, "ndcg@20": 0.2886}
    assert {name: round(metrics[name], 4) for name in expected} == expected
