import os
from collections import namedtuple

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from brim.data.tar.sample_sources import as_raw, from_dataset, from_folder, open_source
from brim.errors import ConfigError, DataError


def fill(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def contents(source):
    return [(sample.key, dict(sample.members)) for sample in source.samples]


def test_files_that_agree_up_to_the_first_dot_are_one_sample(tmp_path):
    fill(tmp_path, {"b.txt": b"1", "x/a.seg.png": b"2", "x/a.JPG": b"3", "b.cls": b"4", "x.d/c.txt": b"5"})
    source = from_folder(tmp_path)
    assert contents(source) == [
        ("b", {"cls": b"4", "txt": b"1"}),
        ("x.d/c", {"txt": b"5"}),
        ("x/a", {"jpg": b"3", "seg.png": b"2"}),
    ]
    assert (source.count, source.left_out) == (3, 0)


def test_hidden_files_are_passed_over_and_files_without_extension_are_counted(tmp_path):
    fill(tmp_path, {"a.txt": b"1", ".hidden.txt": b"", ".git/x.txt": b"", "README": b"", "x/LICENSE": b""})
    source = from_folder(tmp_path)
    assert (contents(source), source.left_out) == ([("a", {"txt": b"1"})], 2)


def test_folders_become_labels_where_that_is_asked(tmp_path):
    fill(tmp_path, {"dog/1.jpg": b"", "cat/1.jpg": b"", "cat/deep/2.jpg": b""})
    source = from_folder(tmp_path, labels="folder")
    assert source.classes == ("cat", "dog")
    assert [(key, members["cls"]) for key, members in contents(source)] == [
        ("cat/1", b"0"), ("cat/deep/2", b"0"), ("dog/1", b"1")]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "sentence"),
    [({"a.jpg": b""}, "needs files in folders named after classes"), ({"x/a.cls": b""}, "is a label already")],
)
def test_a_layout_without_classes_is_refused_as_labels(tmp_path, files, sentence):
    with pytest.raises(DataError, match=sentence):
        from_folder(fill(tmp_path, files), labels="folder")


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path):
    fill(tmp_path, {"secret.txt": b"", "in/a.txt": b"1"})
    (tmp_path / "in" / "b.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(DataError, match=r"b\.txt is a link that leads out of"):
        from_folder(tmp_path / "in")


def test_a_link_within_the_folder_is_packed_as_the_file_it_leads_to(tmp_path):
    fill(tmp_path, {"a.txt": b"1"})
    (tmp_path / "b.txt").symlink_to("a.txt")
    assert contents(from_folder(tmp_path)) == [("a", {"txt": b"1"}), ("b", {"txt": b"1"})]


def test_links_to_folders_broken_links_and_pipes_are_refused(tmp_path):
    for name, make, sentence in (
        ("d", lambda path: path.symlink_to(tmp_path), "is a link to a folder"),
        ("l.txt", lambda path: path.symlink_to("nothing"), "is not a file that can be read"),
        ("p.txt", os.mkfifo, "is not a file that can be read"),
    ):
        folder = fill(tmp_path / name, {"a.txt": b""})
        make(folder / name)
        with pytest.raises(DataError, match=sentence):
            from_folder(folder)


def test_names_that_differ_in_capitals_only_are_refused(tmp_path):
    fill(tmp_path, {"a.txt": b"", "a.TXT": b""})
    with pytest.raises(DataError, match="differ in capitals only"):
        from_folder(tmp_path)


def test_a_folder_with_nothing_to_pack_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="holds no file with an extension"):
        from_folder(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        from_folder(tmp_path / "nothing")


def test_shuffling_is_a_function_of_the_seed(tmp_path):
    fill(tmp_path, {f"{number:02d}.txt": b"" for number in range(50)})
    keys = [[key for key, _ in contents(from_folder(tmp_path, seed))] for seed in (None, 1, 1, 2)]
    assert keys[0] == sorted(keys[0])
    assert keys[1] == keys[2] != keys[3]
    assert sorted(keys[1]) == sorted(keys[3]) == keys[0]


def test_samples_of_a_data_set_keep_their_number_when_shuffled():
    source = from_dataset(TensorDataset(torch.arange(20), torch.arange(20)), shuffle_seed=0)
    assert source.count == 20
    assert sorted(sample.key for sample in source.samples) == [f"{number:09d}" for number in range(20)]


def test_a_stream_is_packed_as_it_comes_and_cannot_be_shuffled():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(["a", "b"])

    for stream in (Stream(), iter(["a", "b"]), (text for text in "ab")):
        source = from_dataset(stream)
        assert source.count is None
        assert contents(source) == [("000000000", {"0.txt": b"a"}), ("000000001", {"0.txt": b"b"})]
    with pytest.raises(ConfigError, match="shuffle_seed needs a data set with a length"):
        from_dataset(Stream(), shuffle_seed=1)


@pytest.mark.parametrize(
    ("sample", "names"),
    [
        ({"__key__": "x/y", "txt": "a", "__url__": "u"}, ["txt"]),
        ((torch.ones(1), 3, "a", b"b"), ["0.npy", "1.cls", "2.txt", "3.bin"]),
        (namedtuple("Pair", "image label")(torch.ones(1), 3), ["image.npy", "label.cls"]),
        ([1.5], ["0.float"]),
        (torch.ones(1), ["0.npy"]),
    ],
)
def test_dicts_tuples_and_single_values_are_samples(sample, names):
    assert list(as_raw(sample, 0).members) == names


@pytest.mark.parametrize(
    "sample",
    [{}, {"__key__": "a"}, {"a": 1, "A": 2}, {"__key__": "a.b", "txt": ""}, {"__key__": "../a", "txt": ""},
     {"__key__": "/a", "txt": ""}, {"__key__": "", "txt": ""}, {"__key__": "a/", "txt": ""}, {"x/y": 1}],
)  # fmt: skip
def test_a_sample_that_cannot_be_named_in_a_shard_is_refused(sample):
    with pytest.raises(DataError, match="the sample"):
        as_raw(sample, 0)


@pytest.mark.parametrize("source", [7, {"a": 1}, None])
def test_what_gives_no_samples_is_refused(source):
    with pytest.raises(DataError, match="cannot pack a"):
        from_dataset(source)


def test_labels_are_for_folders_of_files_only():
    with pytest.raises(ConfigError, match="needs a folder of files"):
        open_source([1], None, "folder")
    with pytest.raises(ConfigError, match="labels='file' is not known"):
        open_source("x", None, "file")
