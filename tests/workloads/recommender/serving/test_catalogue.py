import numpy as np
import pytest
import torch

from brim.errors import DataError
from brim.workloads.recommender import EmbeddedDataset, Interactions, RecommenderDataset
from brim.workloads.recommender.dataset import Movie, Person
from brim.workloads.recommender.serving.catalogue import Catalogue


@pytest.fixture
def catalogue():
    """Three people and two movies with ids of their own."""
    pairs = Interactions(torch.tensor([0, 2]), torch.tensor([1, 0]), 3, 2)
    none = Interactions(torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long), 3, 2)
    people, movies = [Person("F", "18-24", "writer")] * 3, [Movie("Heat", ("Crime",)), Movie("Ran", ("Drama",))]
    splits = {"train": pairs, "validation": none, "test": none}
    return Catalogue(RecommenderDataset(people, movies, splits, np.array([5, 7, 42]), np.array([10, 20])))


def test_ids_of_the_data_set_are_ids_from_0_inside(catalogue):
    assert [catalogue.user_row(user) for user in (5, 7, 42)] == [0, 1, 2]
    assert [catalogue.item_row(item) for item in (10, 20)] == [0, 1]
    assert catalogue.movie(1).title == "Ran"
    assert [catalogue.seen_by(row) for row in range(3)] == [[1], [], [0]]


def test_ids_may_be_names_and_numbers_may_come_as_texts(catalogue):
    assert catalogue.user_row("42") == 2 and catalogue.user_id(2) == 42
    named = Catalogue(replace_ids(catalogue.dataset, np.array(["al", "bea", "zoë"]), np.array(["007", "x y"])))
    assert (named.user_row("bea"), named.item_row("x y"), named.item_id(0)) == (1, 1, "007")
    with pytest.raises(DataError, match="there is no user 0 in the training data, which has 3, ids al to zoë"):
        named.user_row("0")


def replace_ids(dataset, users, items):
    splits = {split: dataset.get_split_data(split) for split in ("train", "validation", "test")}
    return RecommenderDataset(dataset.people, dataset.movies, splits, users, items)


def test_ids_that_there_are_not_are_one_sentence(catalogue):
    with pytest.raises(DataError, match=r"there is no user 6 in the training data, which has 3, ids 5 to 42; .*--like"):
        catalogue.user_row(6)
    with pytest.raises(DataError, match=r"there is no item 5 .* which has 2, ids 10 to 20; .*--new-item"):
        catalogue.item_row(5)


def test_what_people_have_seen_is_in_all_splits():
    dataset = EmbeddedDataset(12, 30)
    pairs, catalogue = dataset.interactions, Catalogue(dataset)
    for user in range(12):
        assert catalogue.seen_by(user) == pairs.items[pairs.users == user].sort().values.tolist()
