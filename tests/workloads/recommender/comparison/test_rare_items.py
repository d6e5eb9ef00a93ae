import torch

from brim.workloads.recommender import Interactions
from brim.workloads.recommender.comparison import less_rated_half, only_items

DATA = Interactions(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([3, 1, 3, 0, 1]), n_users=3, n_items=5)


def test_the_less_rated_half_has_the_fewest_pairs_and_of_equals_the_lower_id():
    assert sorted(less_rated_half(DATA).tolist()) == [2, 4]
    fewer = Interactions(DATA.users, torch.tensor([3, 3, 3, 4, 4]), n_users=3, n_items=5)
    assert less_rated_half(fewer).tolist() == [0, 1]


def test_only_pairs_of_the_items_are_left():
    left = only_items(DATA, torch.tensor([1, 2]))
    assert list(zip(left.users.tolist(), left.items.tolist(), strict=True)) == [(0, 1), (2, 1)]
    assert (left.n_users, left.n_items) == (3, 5)
