import pytest
import torch

from brim.workloads.recommender import EmbeddedDataset, EvalDataLoader, Interactions, Popularity
from brim.workloads.recommender.comparison import Judge, less_rated_half, only_items
from brim.workloads.recommender.comparison.judge import NDCG, RARE, RECALL

DATA = Interactions(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([3, 1, 3, 0, 1]), n_users=3, n_items=5)


def test_slices_are_of_the_test_split_with_training_and_validation_items_left_out():
    dataset = EmbeddedDataset(40, 60)
    train, validation, test = (dataset.get_split_data(name) for name in ("train", "validation", "test"))
    judge, model = Judge(train, validation, test, "cpu"), Popularity(train)
    expected = EvalDataLoader(test, train, device="cpu", also_mask=validation).evaluate(model)
    slices = judge.slices(model)
    assert list(slices) == [NDCG, RECALL, RARE]
    assert float(slices[NDCG].mean()) == pytest.approx(expected[NDCG])
    assert float(slices[RECALL].mean()) == pytest.approx(expected[RECALL])
    assert judge.choose_by(model) == EvalDataLoader(validation, train, device="cpu").evaluate(model)[NDCG]


def test_where_nobody_has_an_item_of_the_less_rated_half_there_is_no_such_slice():
    train = Interactions(torch.tensor([0, 1, 0]), torch.tensor([0, 0, 1]), 2, 4)
    other = Interactions(torch.tensor([1]), torch.tensor([1]), 2, 4)
    assert list(Judge(train, other, other, "cpu").slices(Popularity(train))) == [NDCG, RECALL]


def test_the_less_rated_half_has_the_fewest_pairs_and_of_equals_the_lower_id():
    assert sorted(less_rated_half(DATA).tolist()) == [2, 4]
    fewer = Interactions(DATA.users, torch.tensor([3, 3, 3, 4, 4]), n_users=3, n_items=5)
    assert less_rated_half(fewer).tolist() == [0, 1]


def test_only_pairs_of_the_items_are_left():
    left = only_items(DATA, torch.tensor([1, 2]))
    assert list(zip(left.users.tolist(), left.items.tolist(), strict=True)) == [(0, 1), (2, 1)]
    assert (left.n_users, left.n_items) == (3, 5)
