import math

import pytest
import torch

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
