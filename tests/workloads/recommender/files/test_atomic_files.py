import pytest
import torch

from brim.errors import DataError
from brim.workloads.recommender import AtomicDataset

INTER = "user_id:token\titem_id:token\trating:float\n5\t40\t4\n2\t3\t5\n5\t3\t2\n9\t41\t1\n"
ITEM = "item_id:token\ttitle:token_seq\tyear:token\tclass:token_seq\n3\tLéon\t1994\tCrime Drama\n40\tRan\t\t\n"
USER = "user_id:token\tage:token\tgender:token\toccupation:token\n2\t24\tM\twriter\n5\t\tF\t\n"
SPLITS = ("train", "validation", "test")


@pytest.fixture
def folder(tmp_path):
    for name, content in (("inter", INTER), ("item", ITEM), ("user", USER)):
        (tmp_path / f"small.{name}").write_text(content, encoding="utf-8")
    return tmp_path


def count(dataset):
    return sum(len(dataset.get_split_data(split)) for split in SPLITS)


def test_ids_and_texts_come_from_the_three_files(folder):
    dataset = AtomicDataset(folder)
    assert (dataset.user_ids.tolist(), dataset.item_ids.tolist()) == ([2, 5, 9], [3, 40, 41])
    assert dataset.item_texts() == ["Movie: Léon (1994). Genres: Crime, Drama.", "Movie: Ran.", "Movie: item 41."]
    assert dataset.user_texts() == ["User: man, age 24, occupation: writer.", "User: woman.", "User: person."]
    assert count(dataset) == 4


def test_interactions_alone_are_enough(folder):
    (folder / "small.item").unlink()
    (folder / "small.user").unlink()
    assert AtomicDataset(folder).item_texts()[0] == "Movie: item 3."


def test_items_that_their_file_says_nothing_of_are_told(folder):
    assert any("1 of 3 items are not in" in note and "(41)" in note for note in AtomicDataset(folder).notes)
    (folder / "small.item").unlink()
    assert not any("items are not in" in note for note in AtomicDataset(folder).notes)


def test_users_that_their_file_says_nothing_of_are_told(folder):
    assert any("1 of 3 users are not in" in note and "(9)" in note for note in AtomicDataset(folder).notes)


def test_two_lines_of_one_item_are_refused(folder):
    (folder / "small.item").write_text(ITEM + "3\tAnother\t\t\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"small\.item has several lines of item_id '3'"):
        AtomicDataset(folder)


def test_a_byte_order_mark_is_no_part_of_the_first_column(folder):
    (folder / "small.inter").write_text(INTER, encoding="utf-8-sig")
    assert AtomicDataset(folder).user_ids.tolist() == [2, 5, 9]


def test_a_split_of_numbers_needs_no_header(folder):
    for name, content in (("train", "5\t5\n2\t3\n"), ("valid", "5\t3\n"), ("test", "2\t40\n")):
        (folder / f"{name}.tsv").write_text(content)
    dataset = AtomicDataset(folder, split_files=folder)
    assert [len(dataset.get_split_data(split)) for split in SPLITS] == [2, 1, 1]
    (folder / "test.tsv").write_text("2\t40\n2\n")
    with pytest.raises(DataError, match=r"test\.tsv, line 2: 1 fields"):
        AtomicDataset(folder, split_files=folder)


def test_a_folder_that_is_not_there_and_a_file_without_columns_are_named(folder):
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        AtomicDataset(folder / "nowhere")
    (folder / "small.inter").write_text("")
    with pytest.raises(DataError, match="begins with no line of columns"):
        AtomicDataset(folder)


def test_min_rating_keeps_what_is_rated_so_high(folder):
    assert AtomicDataset(folder, min_rating=4).item_ids.tolist() == [3, 40]
    with pytest.raises(DataError, match="no pairs rated 6 or more"):
        AtomicDataset(folder, min_rating=6)


def test_ids_that_are_names_stay_names_and_are_in_their_order(folder):
    (folder / "small.inter").write_text("user_id:token\titem_id:token\nbea\tB01\nal\tA7\nal\tB01\n")
    (folder / "small.item").write_text("item_id:token\ttitle:token_seq\tcategories:token_seq\nA7\tCup\t'Home', 'Tea'\n")
    dataset = AtomicDataset(folder, split_ratio=[1, 0, 0])
    assert (dataset.user_ids.tolist(), dataset.item_ids.tolist()) == (["al", "bea"], ["A7", "B01"])
    assert dataset.item_texts() == ["Movie: Cup. Genres: Home, Tea.", "Movie: item B01."]
    train = dataset.get_split_data("train")
    assert sorted(zip(train.users.tolist(), train.items.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 1)]


def test_a_pair_that_is_there_twice_is_not_both_trained_on_and_tested(folder):
    rows = "".join(f"{user}\t{item}\n" for user in range(5) for item in range(10))
    (folder / "small.inter").write_text("user_id:token\titem_id:token\n" + rows)
    (folder / "small.item").unlink()
    (folder / "small.user").unlink()
    once = AtomicDataset(folder)
    assert once.notes == ()
    (folder / "small.inter").write_text("user_id:token\titem_id:token\n" + rows * 3)
    dataset = AtomicDataset(folder)
    assert dataset.notes == ("100 of 150 pairs are there already, and count once",)
    for split in SPLITS:  # as where none is repeated
        assert torch.equal(dataset.get_split_data(split).items, once.get_split_data(split).items)


def test_a_pair_that_is_twice_in_the_training_file_is_told(folder):
    for name, content in (("train", "5\t40\n2\t3\n5\t40\n"), ("valid", "5\t3\n"), ("test", "2\t40\n")):
        (folder / f"{name}.tsv").write_text(content)
    notes = AtomicDataset(folder, split_files=folder).notes
    assert "1 of 3 pairs of train are there already; gpt2 and bpr train on them again" in notes


def test_a_pair_in_two_files_of_a_split_is_told(folder):
    for name, content in (("train", "5\t40\n5\t40\n2\t3\n"), ("valid", "5\t3\n"), ("test", "2\t3\n")):
        (folder / f"{name}.tsv").write_text("user_id\titem_id\n" + content)
    note, *_ = AtomicDataset(folder, split_files=folder).notes
    assert note.startswith("1 pairs are in more than one of the files train, validation, test")


def test_users_of_whom_a_split_trains_on_nothing_are_told(folder):
    for name, content in (("train", "5\t40\n2\t3\n"), ("valid", "5\t3\n9\t3\n"), ("test", "2\t40\n5\t41\n")):
        (folder / f"{name}.tsv").write_text(content)
    notes = AtomicDataset(folder, split_files=folder).notes
    assert [note for note in notes if "no pair" in note] == [
        "1 of 2 users of validation have no pair in train, which tells nothing of them"
    ]


def test_a_split_that_is_given_needs_no_interactions_file(folder, tmp_path):
    (folder / "small.inter").unlink()
    for name, content in (("train", "5\t40\n2\t3\n"), ("valid", "5\t3\n"), ("test", "2\t40\n")):
        (folder / f"{name}.tsv").write_text("user_id\titem_id\n" + content)
    dataset = AtomicDataset(folder, split_files=folder)
    assert [len(dataset.get_split_data(split)) for split in SPLITS] == [2, 1, 1]
    assert dataset.item_texts()[0] == "Movie: Léon (1994). Genres: Crime, Drama."


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("user_id:token\n5\n", "has no column item_id in its first line; it has user_id"),
        ("user_id:token\titem_id:token\n5\n", r"line 2: 1 fields separated by tabs instead of 2"),
        ("user_id:token\titem_id:token\n", "has no pairs"),
        ("user_id:token,item_id:token\n5,4\n", "has commas between its columns"),
        ("user_id:token\titem_id:token\n5\t\n", "has a line without item_id"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(folder, content, fault):
    (folder / "small.inter").write_text(content)
    with pytest.raises(DataError, match=fault):
        AtomicDataset(folder)


def test_ratings_that_are_no_numbers_or_not_there_are_named(folder):
    (folder / "small.inter").write_text("user_id:token\titem_id:token\trating:float\n5\t4\tgood\n")
    with pytest.raises(DataError, match="line 2: the rating 'good' is no number"):
        AtomicDataset(folder, min_rating=3)
    (folder / "small.inter").write_text("user_id:token\titem_id:token\trating:float\n5\t4\t5\n5\t3\tnan\n")
    with pytest.raises(DataError, match="line 3: the rating 'nan' is no number"):
        AtomicDataset(folder, min_rating=3)
    (folder / "small.inter").write_text("user_id:token\titem_id:token\n5\t4\n")
    with pytest.raises(DataError, match="has no column rating"):
        AtomicDataset(folder, min_rating=3)


def test_there_must_be_one_file_of_interactions(folder):
    (folder / "other.inter").write_text(INTER)
    with pytest.raises(DataError, match=r"has 2 files \*\.inter"):
        AtomicDataset(folder)
