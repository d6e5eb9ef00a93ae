import pytest
import torch
from helpers.pictures import coloured_shards, picture_bytes

from brim.data import Shards, pack
from brim.errors import DataError
from brim.workloads.classifier.labels import Classes, LabelReader, named_classes
from brim.workloads.classifier.pictures import PictureReader
from brim.workloads.classifier.sample_fields import SampleFields
from brim.workloads.classifier.samples import classes_in, labelled_samples, unlabelled_samples

FIELDS = SampleFields("picture", ("jpg",), "txt")


def test_a_sample_is_what_is_classified_and_the_number_of_its_class(tmp_path):
    shards = Shards(coloured_shards(tmp_path, 4, label="txt"), decode=False)
    samples = labelled_samples(shards, FIELDS, PictureReader(8), LabelReader("txt"), Classes(("red", "green", "blue")))
    assert [label for _, label in (samples[number] for number in range(4))] == [2, 1, 0, 2]
    alone = unlabelled_samples(shards, FIELDS, PictureReader(8))
    assert torch.equal(alone[1], samples[1][0])


def test_classes_are_those_that_are_set_those_of_packing_or_those_that_occur(tmp_path):
    shards = Shards(coloured_shards(tmp_path / "a", 4, label="txt"), decode=False)
    assert classes_in(shards, LabelReader("txt"), ["x", "y"]).names == ("x", "y")
    assert classes_in(shards, LabelReader("txt"), None).names == ("blue", "green", "red")
    for name in ("b", "a"):
        (tmp_path / "files" / name).mkdir(parents=True)
        (tmp_path / "files" / name / "1.txt").write_text("")
    pack(tmp_path / "files", tmp_path / "packed", labels="folder")
    assert classes_in(Shards(tmp_path / "packed"), LabelReader("cls"), None).names == ("a", "b")


def test_a_label_that_is_no_class_names_its_sample(tmp_path):
    shards = Shards(coloured_shards(tmp_path, 3, label="txt"), decode=False, on_damage="skip")
    samples = labelled_samples(shards, FIELDS, PictureReader(8), LabelReader("txt"), Classes(("blue", "green")))
    with pytest.raises(DataError, match="the sample '0002': the label 'red' is none of the 2 classes"):
        samples.__getitems__([0, 2])


def labels_of_folders(where, names, classes=None):
    """The class of a sample of each folder, as a training has it whose shards were packed from ``where / "train"``."""
    for name in names:
        (where / name).mkdir(parents=True)
        (where / name / "1.jpg").write_bytes(picture_bytes())
    shards = Shards(pack(where, where.with_name(f"{where.name} packed"), labels="folder").folder, decode=False)
    label = LabelReader("cls")
    classes = classes or classes_in(shards, label, None)
    fields = SampleFields("picture", ("jpg",), "cls")
    samples = labelled_samples(shards, fields, PictureReader(8), label, classes)
    found = {samples.key(at).split("/")[0]: samples[at][1] for at in range(len(samples))}
    return {name: classes.names[number] for name, number in found.items()}, classes


def test_a_folder_is_the_same_class_in_shards_that_lack_another_one(tmp_path):
    found, classes = labels_of_folders(tmp_path / "train", ["cat", "dog", "hen"])
    assert found == {name: name for name in ("cat", "dog", "hen")}
    assert labels_of_folders(tmp_path / "valid", ["dog", "hen"], classes)[0] == {"dog": "dog", "hen": "hen"}
    reordered = Classes(("hen", "cat", "dog"))
    assert labels_of_folders(tmp_path / "other", ["cat", "dog"], reordered)[0] == {"cat": "cat", "dog": "dog"}
    with pytest.raises(DataError, match="the label 'emu' is none of the 3 classes"):
        labels_of_folders(tmp_path / "more", ["cat", "emu"], classes)


def test_names_that_no_folder_has_are_those_of_the_numbers(tmp_path):
    renamed = Classes(("tench", "goldfish"))
    assert labels_of_folders(tmp_path / "train", ["n01", "n02"], renamed)[0] == {"n01": "tench", "n02": "goldfish"}
    assert labels_of_folders(tmp_path / "same", ["n01", "n02"], named_classes(2))[0] == {"n01": "0", "n02": "1"}


def test_folders_may_be_named_by_numbers(tmp_path):
    names = [str(number) for number in range(1, 13)]
    assert labels_of_folders(tmp_path / "train", names)[0] == {name: name for name in names}
    assert labels_of_folders(tmp_path / "padded", ["01", "02"])[0] == {"01": "1", "02": "2"}
