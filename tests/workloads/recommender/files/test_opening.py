import os
from pathlib import Path

import pytest

from brim.errors import ConfigError, DataError
from brim.workloads.recommender import AtomicDataset, ML1MDataset
from brim.workloads.recommender.files.opening import open_dataset


def test_what_is_in_a_folder_decides_how_it_is_read(tmp_path):
    with pytest.raises(DataError, match=r"NAME\.inter"):
        open_dataset(tmp_path)
    (tmp_path / "a.inter").write_text("user_id:token\titem_id:token\n1\t2\n")
    assert isinstance(open_dataset(tmp_path), AtomicDataset)
    (tmp_path / "users.dat").write_text("1::F::18::4::0\n")
    (tmp_path / "movies.dat").write_text("2::Ran (1985)::Drama\n")
    (tmp_path / "ratings.dat").write_text("1::2::5::0\n")
    assert isinstance(open_dataset(tmp_path), ML1MDataset)


def test_a_folder_that_is_not_there_and_two_choices_of_pairs_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        open_dataset(tmp_path / "none")
    with pytest.raises(ConfigError, match="leave one of both out"):
        open_dataset(tmp_path, split_files=tmp_path, min_rating=3)


def test_movielens_100k_in_recboles_files_is_read():
    if "BRIM_TEST_DATA" not in os.environ:
        pytest.skip("needs MovieLens-100K in the folder that BRIM_TEST_DATA names")
    folder = Path(os.environ["BRIM_TEST_DATA"]) / "ml-100k"
    dataset = open_dataset(folder, folder / "recbole_split")
    assert [len(dataset.get_split_data(split)) for split in ("train", "validation", "test")] == [80_808, 9_596, 9_596]
    assert dataset.item_texts()[0] == "Movie: Toy Story (1995). Genres: Animation, Children's, Comedy."
    assert dataset.user_texts()[0] == "User: man, age 24, occupation: technician."
