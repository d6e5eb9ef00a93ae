import torch

from brim.workloads.recommender import Interactions
from brim.workloads.recommender.history.user_rows import UserRows


def test_what_users_watched_is_found_in_the_order_asked_for_each_pair_once():
    data = Interactions(torch.tensor([2, 0, 2, 0, 2]), torch.tensor([1, 3, 0, 3, 4]), n_users=3, n_items=5)
    pairs = UserRows.of(data).pairs_of(torch.tensor([2, 1, 0]))
    assert list(zip(pairs.rows.tolist(), pairs.items.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 4), (2, 3)]
    assert pairs.positions.tolist() == [1, 2, 3, 0]
