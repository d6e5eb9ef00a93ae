import json
import os
from pathlib import Path

import pytest

from brim.errors import DataError
from brim.workloads.recommender.files.opening import open_dataset
from brim.workloads.recommender.files.split_files import read_split

LISTS = {"train_data": [[0, 1], [2]], "validation_data": [[2], []], "test_data": [[], [0]]}


@pytest.fixture
def bars(tmp_path):
    for name, lists in LISTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(lists))
    (tmp_path / "idmap.json").write_text(json.dumps({"users": ["7", "5"], "items": ["30", "10", "20"]}))
    return tmp_path


def pairs(split):
    return {name: list(zip(users.tolist(), items.tolist(), strict=True)) for name, (users, items) in split.items()}


def test_tables_have_a_user_and_an_item_a_line(tmp_path):
    for name, content in (("train", "1\t2\n"), ("valid", "1\t3\n"), ("test", "4\t2\n")):
        (tmp_path / f"{name}.tsv").write_text("user_id\titem_id\n" + content)
    assert pairs(read_split(tmp_path)) == {"train": [(1, 2)], "validation": [(1, 3)], "test": [(4, 2)]}


def test_lists_by_place_become_the_ids_of_the_data_set(bars):
    expected = {"train": [(7, 30), (7, 10), (5, 20)], "validation": [(7, 20)], "test": [(5, 30)]}
    assert pairs(read_split(bars)) == expected
    by_place = {str(place): items for place, items in enumerate(LISTS["train_data"])}
    (bars / "train_data.json").write_text(json.dumps(by_place))
    assert pairs(read_split(bars)) == expected


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("idmap.json", None, r"cannot read .*idmap\.json: No such file.*which ids"),
        ("idmap.json", '{"users": ["7"]}', r"must be \{\"users\""),
        ("test_data.json", None, r"cannot read .*test_data\.json"),
        ("test_data.json", "[[0, 1", "is no JSON"),
        ("test_data.json", "[3]", "a list of items for each user"),
        ("test_data.json", "[[3]]", "names item 3, and idmap.json has 3 items"),
        ("test_data.json", "[[0, -1]]", "names item -1, and idmap.json has 3 items"),
        ("test_data.json", "[[0.5]]", "a list of items for each user"),
        ("test_data.json", "5", "a list of items for each user"),
        ("idmap.json", '{"users": [7, 5], "items": [10, 20, 10]}', "has one item at two places"),
        ("test_data.json", "[[], [], [1]]", "names user 2, and idmap.json has 2 users"),
    ],
)
def test_what_is_wrong_with_lists_is_said(bars, name, content, fault):
    (bars / name).unlink() if content is None else (bars / name).write_text(content)
    with pytest.raises(DataError, match=fault):
        read_split(bars)


def test_the_split_of_bars_is_read():
    if "BRIM_TEST_DATA" not in os.environ:
        pytest.skip("needs MovieLens-1M in the folder that BRIM_TEST_DATA names")
    folder = Path(os.environ["BRIM_TEST_DATA"]) / "ml-1m"
    dataset = open_dataset(folder, folder / "bars_m1")
    assert [len(dataset.get_split_data(split)) for split in ("train", "validation", "test")] == [
        796_244,
        99_455,
        99_455,
    ]
    assert (dataset.get_user_num(), dataset.get_item_num()) == (6022, 3043)
    assert dataset.item_texts()[0] == "Movie: Toy Story (1995). Genres: Animation, Children's, Comedy."
