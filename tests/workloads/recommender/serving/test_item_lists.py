import torch

from brim.workloads.recommender import Interactions
from brim.workloads.recommender.serving.item_lists import ItemLists


def test_each_user_has_their_items_of_all_parts_once_and_in_order():
    parts = [
        Interactions(torch.tensor([2, 0, 2]), torch.tensor([4, 1, 0]), 4, 5),
        Interactions(torch.tensor([2, 3]), torch.tensor([4, 4]), 4, 5),
    ]
    lists = ItemLists.of(parts)
    assert [lists[user].tolist() for user in range(4)] == [[1], [], [0, 4], [4]]
