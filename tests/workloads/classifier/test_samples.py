import pytest
import torch
from helpers.pictures import coloured_shards

from brim.data import Shards, pack
from brim.errors import DataError
from brim.workloads.classifier.labels import Classes, LabelReader
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
