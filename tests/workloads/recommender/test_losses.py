import math

import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender import BPR, EmbeddedDataset, GPT2RecommenderEnhanced, TrainDataLoader
from brim.workloads.recommender.losses import hidden_items_loss, sampled_softmax_loss, softmax_loss


def plain_likelihood(scores, wanted):
    return scores[wanted] - math.log(sum(math.exp(score) for score in scores))


def test_softmax_is_the_mean_likelihood_of_the_positive_among_all_items():
    users, items, positives = torch.randn(3, 4), torch.randn(6, 4), torch.tensor([5, 0, 5])
    expected = sum(plain_likelihood((items @ user).tolist(), int(p)) for user, p in zip(users, positives, strict=True))
    assert softmax_loss(users, positives, items).item() == pytest.approx(-expected / 3, rel=1e-5)


def test_sampled_softmax_is_the_same_among_what_was_drawn():
    users, positives, negatives = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 5, 4)
    expected = 0.0
    for user, positive, others in zip(users, positives, negatives, strict=True):
        expected -= plain_likelihood([torch.dot(user, item).item() for item in (positive, *others)], 0) / 3
    assert sampled_softmax_loss(users, positives, negatives).item() == pytest.approx(expected, rel=1e-5)


def test_sampled_softmax_with_one_negative_is_bpr():
    users, positives, negatives = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 1, 4)
    margins = (users * (positives - negatives[:, 0])).sum(1)
    expected = -torch.nn.functional.logsigmoid(margins).mean()
    torch.testing.assert_close(sampled_softmax_loss(users, positives, negatives), expected)


def test_hidden_items_count_among_candidates_alone():
    scores = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    candidates = torch.tensor([[True, True, True, False]])
    hidden = torch.tensor([[True, False, True, False]])
    expected = -plain_likelihood([1.0, 2.0, 3.0], 0) - plain_likelihood([1.0, 2.0, 3.0], 2)
    assert hidden_items_loss(scores, candidates, hidden).item() == pytest.approx(expected, rel=1e-5)


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(n_users=12, n_items=15)


@pytest.mark.parametrize("kind", ["BPR", "GPT2RecommenderEnhanced"])
@pytest.mark.parametrize("loss", ["softmax", "sampled_softmax"])
def test_a_model_is_trained_with_the_loss_that_was_named(dataset, kind, loss):
    torch.manual_seed(0)
    model = (
        BPR(12, 15, 4, loss=loss)
        if kind == "BPR"
        else GPT2RecommenderEnhanced(12, 15, 4, dataset, hidden_dim=8, loss=loss)
    )
    drawn = 5 if loss == "sampled_softmax" else None
    batch = next(iter(TrainDataLoader(dataset.get_split_data("train"), 6, device="cpu", negatives=drawn)))
    users, items = model.user_vectors(batch.users), model.item_vectors()
    expected = 0.0
    for row, (user, positive) in enumerate(zip(users, batch.positives.tolist(), strict=True)):
        scores = (items @ user).tolist()
        if loss == "softmax":
            expected -= plain_likelihood(scores, positive) / 6
        else:
            expected -= plain_likelihood([scores[i] for i in (positive, *batch.negatives[row].tolist())], 0) / 6
    assert model.calculate_loss(batch).item() == pytest.approx(expected, rel=1e-4)
    example = model.example_batch(3)
    assert model.calculate_loss(example).isfinite()


def test_several_negatives_are_none_of_the_users_items(dataset):
    train = dataset.get_split_data("train")
    known = set(zip(train.users.tolist(), train.items.tolist(), strict=True))
    rows = [
        (int(u), n)
        for b in TrainDataLoader(train, 8, device="cpu", negatives=4)
        for u, r in zip(b.users, b.negatives.tolist(), strict=True)
        for n in r
    ]
    assert len(rows) == 4 * len(train)
    assert not known & set(rows)
    assert len({n for _, n in rows}) > 5


def test_an_unknown_loss_is_refused():
    with pytest.raises(ConfigError, match="loss='hinge'"):
        BPR(2, 3, loss="hinge")
