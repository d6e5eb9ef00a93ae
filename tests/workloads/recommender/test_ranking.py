import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brim.workloads.recommender.ranking import RankingSums, best_items


def plain_metrics(scores, relevant, k):
    """One user's metrics at k, item by item."""
    ranked = sorted(range(len(scores)), key=lambda item: -scores[item])[:k]
    found = [rank for rank, item in enumerate(ranked, start=1) if item in relevant]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return {
        f"recall@{k}": len(found) / len(relevant),
        f"ndcg@{k}": sum(1 / math.log2(rank + 1) for rank in found) / ideal,
        f"mrr@{k}": 1 / found[0] if found else 0.0,
        f"hit@{k}": float(bool(found)),
        f"precision@{k}": len(found) / k,
    }


def plain_means(users, ks):
    each = [{name: value for k in ks for name, value in plain_metrics(*user, k).items()} for user in users]
    return {name: sum(metrics[name] for metrics in each) / len(each) for name in each[0]}


def as_matrices(users, n_items):
    relevant = torch.tensor([[item in known for item in range(n_items)] for _, known in users])
    return torch.tensor([scores for scores, _ in users], dtype=torch.float32), relevant


@st.composite
def scored_users(draw):
    """Users with a score for each item, some of them equal, and at least one relevant item."""
    n_items = draw(st.integers(1, 15))
    scores = st.lists(st.sampled_from([-2.5, -2.0, -0.0, 0.0, 1e-30, 1.0, 3.0]), min_size=n_items, max_size=n_items)
    user = st.tuples(scores | st.permutations(range(n_items)), st.sets(st.integers(0, n_items - 1), min_size=1))
    return draw(st.lists(user, min_size=1, max_size=8)), n_items


@given(scored_users(), st.sets(st.integers(1, 20), min_size=1, max_size=3), st.integers(1, 8))
def test_the_sums_over_batches_are_the_means_of_every_user_by_hand(data, ks, batch_size):
    users, n_items = data
    ks = tuple(sorted(ks))
    scores, relevant = as_matrices(users, n_items)
    sums = RankingSums(ks, n_items, torch.device("cpu"))
    for first in range(0, len(users), batch_size):
        sums.add(scores[first : first + batch_size], relevant[first : first + batch_size])
    assert sums.means() == pytest.approx(plain_means(users, ks), rel=1e-6)


@given(scored_users())
def test_a_count_that_is_given_is_the_count_that_is_computed(data):
    users, n_items = data
    scores, relevant = as_matrices(users, n_items)
    computed, given_one = (RankingSums((1, 5), n_items, torch.device("cpu")) for _ in range(2))
    computed.add(scores, relevant)
    given_one.add(scores, relevant, torch.tensor([len(known) for _, known in users]))
    assert given_one.means() == computed.means()


def test_known_values():
    """Relevant items on ranks 2 and 4 of five, one of three relevant ones not within 4."""
    sums = RankingSums((4,), 5, torch.device("cpu"))
    sums.add(torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]]), torch.tensor([[False, True, False, True, True]]))
    ideal = 1 + 1 / math.log2(3) + 0.5
    expected = {
        "recall@4": 2 / 3,
        "ndcg@4": (1 / math.log2(3) + 1 / math.log2(5)) / ideal,
        "mrr@4": 0.5,
        "hit@4": 1.0,
        "precision@4": 0.5,
    }
    assert sums.means() == pytest.approx(expected)


def test_a_perfect_ranking_has_full_marks_even_with_more_relevant_items_than_k():
    sums = RankingSums((2,), 4, torch.device("cpu"))
    sums.add(torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[True, True, True, False]]))
    assert sums.means() == pytest.approx({"recall@2": 2 / 3, "ndcg@2": 1, "mrr@2": 1, "hit@2": 1, "precision@2": 1})


@pytest.mark.gpu
def test_the_metrics_are_the_same_on_the_gpu():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(100, 50, generator=generator)
    relevant = torch.rand(100, 50, generator=generator) < 0.1
    relevant[:, 0] = True
    means = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        sums = RankingSums((5, 10), 50, device)
        sums.add(scores.to(device), relevant.to(device))
        means.append(sums.means())
    assert means[0] == pytest.approx(means[1], rel=1e-6)


def test_what_is_left_out_is_not_found_even_where_too_few_items_are_left():
    """Of a pair that is in train and in test, and of a user who knows nearly all items."""
    sums = RankingSums((3,), 4, torch.device("cpu"))
    sums.add(torch.tensor([[1.0, -torch.inf, -torch.inf, -torch.inf]]), torch.tensor([[False, True, False, False]]))
    assert set(sums.means().values()) == {0.0}


def test_equal_scores_are_ranked_by_id_as_a_stable_sort_does():
    scores = torch.randint(-3, 4, (500, 300), generator=torch.Generator().manual_seed(0)).float()
    items, best = best_items(scores, 40)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(items, expected.indices[:, :40]) and torch.equal(best, expected.values[:, :40])
