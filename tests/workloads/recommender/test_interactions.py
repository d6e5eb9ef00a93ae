from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brim.errors import ConfigError, DataError
from brim.workloads.recommender import Interactions
from brim.workloads.recommender.interactions import SPLITS, split_per_user


def interactions(pairs, n_users=8, n_items=20):
    users, items = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    return Interactions(users, items, n_users, n_items)


def pairs_of(data):
    return list(zip(data.users.tolist(), data.items.tolist(), strict=True))


def per_user(pairs_each):
    """So many pairs for each user, users taking turns."""
    most = max(pairs_each)
    pairs = [(user, item) for item in range(most) for user, count in enumerate(pairs_each) if item < count]
    return interactions(pairs, len(pairs_each), most)


pairs = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 19)), unique=True, max_size=60)
shares = st.floats(0, 1, allow_nan=False)


@given(pairs, st.tuples(st.floats(0.01, 1), shares, shares), st.integers(0, 100))
def test_the_splits_partition_every_users_pairs_and_each_user_trains(pairs, ratio, seed):
    splits = split_per_user(interactions(pairs), ratio, seed)
    assert list(splits) == list(SPLITS)
    assert Counter(pair for split in splits.values() for pair in pairs_of(split)) == Counter(pairs)
    assert {user for user, _ in pairs_of(splits["train"])} == {user for user, _ in pairs}


def test_every_user_is_split_by_the_ratio():
    splits = split_per_user(per_user([10, 20, 30]), [0.8, 0.1, 0.1])
    counts = {name: torch.bincount(split.users, minlength=3).tolist() for name, split in splits.items()}
    assert counts == {"train": [8, 16, 24], "validation": [1, 2, 3], "test": [1, 2, 3]}


@pytest.mark.parametrize("ratio", [(8, 1, 1), (80, 10, 10)])
def test_shares_of_any_sum_mean_the_same(ratio):
    data = per_user([10, 7, 30])
    expected = split_per_user(data, (0.8, 0.1, 0.1))
    assert {n: pairs_of(s) for n, s in split_per_user(data, ratio).items()} == {
        n: pairs_of(s) for n, s in expected.items()
    }


def test_a_share_of_nothing_leaves_a_split_empty():
    splits = split_per_user(per_user([10, 20]), (0.9, 0.1, 0.0))
    assert [len(split) for split in splits.values()] == [27, 3, 0]


def test_a_user_with_one_pair_trains_on_it():
    splits = split_per_user(per_user([1, 1]), (0.1, 0.45, 0.45))
    assert [len(split) for split in splits.values()] == [2, 0, 0]


def test_the_split_is_random_and_a_function_of_the_seed():
    data = per_user([30, 30])
    first, again, other = (pairs_of(split_per_user(data, (0.8, 0.1, 0.1), seed)["test"]) for seed in (1, 1, 2))
    assert first == again
    assert sorted(first) != sorted(other)
    assert {item for _, item in first} != {27, 28, 29}  # not simply each user's last


def test_splits_know_how_many_users_and_items_there_are():
    for split in split_per_user(per_user([5, 3]), (1, 1, 1)).values():
        assert (split.n_users, split.n_items) == (2, 5)


@pytest.mark.parametrize("ratio", [(0.8, 0.2), (0.8, 0.1, 0.1, 0.0), (1, -1, 1), (0, 0.5, 0.5), (float("nan"), 1, 1)])
def test_a_ratio_that_is_none_is_refused_with_an_example(ratio):
    with pytest.raises(ConfigError, match=r"split_ratio=.*\[0\.8, 0\.1, 0\.1\]"):
        split_per_user(per_user([5]), ratio)


def test_as_many_users_as_items_are_needed():
    with pytest.raises(DataError, match="2 users and 3 items"):
        Interactions(torch.zeros(2), torch.zeros(3), 1, 1)


@pytest.mark.gpu
def test_interactions_move_to_the_gpu():
    moved = per_user([3, 2]).to(torch.device("cuda"))
    assert moved.users.is_cuda
    assert moved.items.is_cuda
    assert pairs_of(moved) == pairs_of(per_user([3, 2]))
