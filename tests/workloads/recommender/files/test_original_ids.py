import numpy as np
import pytest

from brim.errors import DataError
from brim.workloads.recommender.files.original_ids import check_described, number_parts

PARTS = {"train": (np.array([9, 2]), np.array([40, 3])), "test": (np.array([2]), np.array([41]))}


def test_ids_from_0_are_in_the_order_of_those_of_the_files_over_all_parts():
    found = number_parts(PARTS)
    assert (found.user_ids.tolist(), found.item_ids.tolist()) == ([2, 9], [3, 40, 41])
    assert found.pairs["train"].users.tolist() == [1, 0]
    assert found.pairs["train"].items.tolist() == [1, 0]
    assert (found.pairs["test"].n_users, found.pairs["test"].n_items) == (2, 3)
    assert found.pairs["test"].items.tolist() == [2]


def test_names_are_numbered_too():
    found = number_parts({"train": (np.array(["b", "a"]), np.array(["x", "x"]))})
    assert found.user_ids.tolist() == ["a", "b"]
    assert found.pairs["train"].users.tolist() == [1, 0]


def test_an_id_that_nothing_describes_is_named():
    check_described(np.array([1, 2]), {1: "", 2: ""}, "movies.dat", "movie")
    with pytest.raises(DataError, match=r"movie 2 has ratings and no line in movies\.dat"):
        check_described(np.array([1, 2]), {1: ""}, "movies.dat", "movie")
