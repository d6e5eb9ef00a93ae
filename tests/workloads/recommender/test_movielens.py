import os
from collections import Counter
from pathlib import Path

import pytest

from brim.errors import DataError
from brim.workloads.recommender import ML1MDataset

USERS = "2::M::56::16::70072\n5::F::1::10::48067\n9::M::25::20::55117-1\n"
MOVIES = (
    "3::Léon (1994)::Crime|Drama\n"
    "7::Nobody Saw This (1999)::Drama\n"
    "40::Face/Off: Part 2 (1997)::Action\n"
    "41::Clue (1985)::Comedy\n"
)
RATINGS = "5::40::4::978300760\n2::3::5::978302109\n5::3::2::978301968\n9::41::1::978300275\n2::41::3::978824291\n"
SPLITS = {"train": "5\t40\n2\t3\n", "validation": "5\t3\n", "test": "2\t41\n"}


@pytest.fixture
def folder(tmp_path):
    for name, content in (("users.dat", USERS), ("movies.dat", MOVIES), ("ratings.dat", RATINGS)):
        (tmp_path / name).write_text(content, encoding="latin-1")
    return tmp_path


@pytest.fixture
def split_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    for name, pairs in SPLITS.items():
        (folder / f"{name}.tsv").write_text("user_id\titem_id\n" + pairs)
    return folder


@pytest.fixture(scope="module")
def real_folder():
    if "BRIM_TEST_DATA" not in os.environ:
        pytest.skip("needs MovieLens-1M in the folder that BRIM_TEST_DATA names")
    return Path(os.environ["BRIM_TEST_DATA"]) / "ml-1m"


def pairs_of(dataset, split):
    data = dataset.get_split_data(split)
    return list(zip(data.users.tolist(), data.items.tolist(), strict=True))


def all_pairs(dataset):
    return sorted(pair for split in SPLITS for pair in pairs_of(dataset, split))


def write_many_ratings(folder, n_users=30, n_movies=40):
    """A larger data set of the same three people's kind: everybody rated ten movies, from 1 to 5 stars."""
    (folder / "users.dat").write_text("".join(f"{user}::F::18::4::0\n" for user in range(1, n_users + 1)))
    (folder / "movies.dat").write_text("".join(f"{movie}::M{movie}::Drama\n" for movie in range(1, n_movies + 1)))
    rated = [(user, (user * 7 + n * 3) % n_movies + 1, n % 5 + 1) for user in range(1, n_users + 1) for n in range(10)]
    (folder / "ratings.dat").write_text("".join(f"{user}::{movie}::{stars}::0\n" for user, movie, stars in rated))
    return rated


def test_ids_become_dense_in_the_order_of_movielens_ids(folder):
    dataset = ML1MDataset(folder)
    assert dataset.user_ids.tolist() == [2, 5, 9]
    assert dataset.item_ids.tolist() == [3, 40, 41]  # nobody rated 7
    assert (dataset.get_user_num(), dataset.get_item_num()) == (3, 3)
    assert all_pairs(dataset) == [(0, 0), (0, 2), (1, 0), (1, 1), (2, 2)]
    for split in SPLITS:
        assert (dataset.get_split_data(split).n_users, dataset.get_split_data(split).n_items) == (3, 3)


def test_texts_say_who_and_what_it_is_with_latin_1_titles(folder):
    dataset = ML1MDataset(str(folder))
    assert dataset.user_texts() == [
        "User: man, age 56 or older, occupation: self-employed.",
        "User: woman, age under 18, occupation: K-12 student.",
        "User: man, age 25-34, occupation: writer.",
    ]
    assert dataset.item_texts() == [
        "Movie: Léon (1994). Genres: Crime, Drama.",
        "Movie: Face/Off: Part 2 (1997). Genres: Action.",
        "Movie: Clue (1985). Genres: Comedy.",
    ]


def test_windows_line_ends_read_the_same(folder):
    expected = ML1MDataset(folder)
    for name in ("users.dat", "movies.dat", "ratings.dat"):
        (folder / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))
    again = ML1MDataset(folder)
    assert (again.people, again.movies, all_pairs(again)) == (expected.people, expected.movies, all_pairs(expected))


def test_min_rating_keeps_ratings_of_so_many_stars_and_nobody_without_one(folder):
    dataset = ML1MDataset(folder, min_rating=3)
    assert dataset.user_ids.tolist() == [2, 5]  # 9 gave one star, and disappears
    assert len(dataset.user_texts()) == dataset.get_user_num() == 2
    assert all_pairs(dataset) == [(0, 0), (0, 2), (1, 1)]


def test_movies_without_a_rating_left_disappear(folder):
    assert [movie.title for movie in ML1MDataset(folder, min_rating=5).movies] == ["Léon (1994)"]


def test_the_splits_partition_every_users_pairs_by_the_ratio(folder):
    rated = write_many_ratings(folder)
    dataset = ML1MDataset(folder, split_ratio=[0.8, 0.1, 0.1])
    counts = {split: Counter(user for user, _ in pairs_of(dataset, split)) for split in SPLITS}
    assert {split: set(count.values()) for split, count in counts.items()} == {
        "train": {8}, "validation": {1}, "test": {1},
    }  # fmt: skip
    as_rated = [(dataset.user_ids[user], dataset.item_ids[item]) for user, item in all_pairs(dataset)]
    assert as_rated == sorted((user, movie) for user, movie, _ in rated)


def test_min_rating_and_the_split_go_together(folder):
    rated = write_many_ratings(folder)
    dataset = ML1MDataset(folder, min_rating=4)
    as_rated = [(dataset.user_ids[user], dataset.item_ids[item]) for user, item in all_pairs(dataset)]
    assert as_rated == sorted((user, movie) for user, movie, stars in rated if stars >= 4)


def test_the_split_is_a_function_of_the_seed(folder):
    write_many_ratings(folder)
    first, again, other = (pairs_of(ML1MDataset(folder, seed=seed), "test") for seed in (3, 3, 4))
    assert first == again
    assert sorted(first) != sorted(other)


def test_a_split_can_be_given_as_a_folder(folder, split_folder):
    dataset = ML1MDataset(folder, split_files=split_folder)
    assert dataset.user_ids.tolist() == [2, 5]
    assert [pairs_of(dataset, split) for split in SPLITS] == [[(1, 1), (0, 0)], [(1, 0)], [(0, 2)]]
    assert dataset.get_split_data("test").n_users == 2


def test_a_split_folders_validation_file_may_be_called_valid(folder, split_folder):
    (split_folder / "validation.tsv").rename(split_folder / "valid.tsv")
    assert pairs_of(ML1MDataset(folder, split_files=str(split_folder)), "validation") == [(1, 0)]


def test_a_split_can_be_given_as_a_mapping_to_files_of_any_name(folder, split_folder):
    files = {split: str((split_folder / f"{split}.tsv").rename(split_folder / f"my-{split}.txt")) for split in SPLITS}
    dataset = ML1MDataset(folder, split_files=files)
    assert [pairs_of(dataset, split) for split in SPLITS] == [[(1, 1), (0, 0)], [(1, 0)], [(0, 2)]]


def test_a_given_split_needs_no_ratings_file(folder, split_folder):
    (folder / "ratings.dat").unlink()
    assert ML1MDataset(folder, split_files=split_folder).get_user_num() == 2


def test_a_split_without_all_of_its_files_is_refused(folder, split_folder):
    with pytest.raises(DataError, match=r"names no file for validation, test"):
        ML1MDataset(folder, split_files={"train": split_folder / "train.tsv"})
    (split_folder / "validation.tsv").unlink()
    with pytest.raises(DataError, match=r"has no validation\.tsv or valid\.tsv"):
        ML1MDataset(folder, split_files=split_folder)


def test_a_bad_line_of_a_split_file_is_named(folder, split_folder):
    with (split_folder / "test.tsv").open("a") as file:
        file.write("2\n")
    with pytest.raises(DataError, match=r"test\.tsv, line 3: 1 fields separated by 'tab' instead of 2"):
        ML1MDataset(folder, split_files=split_folder)


def test_a_folder_that_is_not_there_is_named_with_how_to_get_the_data(tmp_path):
    with pytest.raises(DataError, match=r"there is no folder .*ml-1m; `brim data ml-1m`"):
        ML1MDataset(tmp_path / "ml-1m")


@pytest.mark.parametrize("name", ["users.dat", "movies.dat", "ratings.dat"])
def test_a_file_that_is_not_there_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"cannot read .*{name}: No such file"):
        ML1MDataset(folder)


@pytest.mark.parametrize(("name", "kind", "gone"), [("movies.dat", "movie", 41), ("users.dat", "user", 9)])
def test_ratings_of_what_no_file_describes_are_refused(folder, name, kind, gone):
    lines = (folder / name).read_text(encoding="latin-1").splitlines(keepends=True)
    (folder / name).write_text("".join(line for line in lines if not line.startswith(f"{gone}::")), encoding="latin-1")
    with pytest.raises(DataError, match=rf"{kind} {gone} has ratings and no line in {name}"):
        ML1MDataset(folder)


@pytest.mark.parametrize(
    ("name", "line", "fault"),
    [
        ("users.dat", "10::F::18::4", "4 fields instead of 5"),
        ("users.dat", "10::F::18::4::1::2", "6 fields instead of 5"),
        ("users.dat", "10::X::18::4::1", "'X', '18', '4' is no gender, age, occupation"),
        ("users.dat", "10::f::18::4::1", "'f', '18', '4' is no gender"),
        ("users.dat", "10::F::19::4::1", "'F', '19', '4' is no gender, age"),
        ("users.dat", "10::F::young::4::1", "'F', 'young', '4' is no gender, age"),
        ("users.dat", "10::F::18::21::1", "'F', '18', '21' is no gender, age, occupation"),
        ("users.dat", "ten::F::18::4::1", "'ten' is not an id"),
        ("users.dat", "0::F::18::4::1", "'0' is not an id"),
        ("movies.dat", "50::Two Fields (2000)", "2 fields instead of 3"),
        ("movies.dat", "50::Four::Fields::Drama", "4 fields instead of 3"),
        ("movies.dat", "-5::Minus (2000)::Drama", "'-5' is not an id"),
        ("ratings.dat", "2::3::5", "3 fields separated by '::' instead of 4"),
        ("ratings.dat", "2::3::five::1", "'five' is not a rating"),
    ],
)
def test_a_malformed_line_is_named_by_file_line_and_fault(folder, name, line, fault):
    lines = (folder / name).read_text(encoding="latin-1").splitlines()
    (folder / name).write_text("\n".join([lines[0], line, *lines[1:]]), encoding="latin-1")
    with pytest.raises(DataError, match=rf"{name}, line 2: {fault}"):
        ML1MDataset(folder)


def test_a_min_rating_that_leaves_nothing_is_refused(folder):
    with pytest.raises(DataError, match=r"no rating of 6 or more stars; lower min_rating"):
        ML1MDataset(folder, min_rating=6)


def test_all_of_movielens_1m_is_read(real_folder):
    dataset = ML1MDataset(real_folder)
    assert sum(len(dataset.get_split_data(split)) for split in SPLITS) == 1_000_209
    assert (dataset.get_user_num(), dataset.get_item_num()) == (6040, 3706)
    assert dataset.user_texts()[0] == "User: woman, age under 18, occupation: K-12 student."
    assert dataset.item_texts()[0] == "Movie: Toy Story (1995). Genres: Animation, Children's, Comedy."


def test_recboles_split_of_movielens_1m_is_read(real_folder):
    dataset = ML1MDataset(real_folder, split_files=real_folder / "recbole_split_ge3")
    assert [len(dataset.get_split_data(split)) for split in SPLITS] == [674_674, 80_902, 80_902]
