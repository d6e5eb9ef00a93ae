import io

import numpy as np
import pytest

from brim.errors import DataError
from brim.workloads.classifier.labels import Classes, LabelReader, classes_of, named_classes


def read(field, content, key=None):
    return LabelReader(field, key)(memoryview(bytearray(content)))


@pytest.mark.parametrize(
    ("field", "content", "label"),
    [("cls", b"3", "3"), ("cls", b" 03\n", "3"), ("cls", b"cat", "cat"), ("txt", "Käse \n".encode(), "Käse"),
     ("label.index", b"12", "12"), ("json", b'"dog"', "dog"), ("json", b"4", "4")],
)  # fmt: skip
def test_a_label_is_a_number_or_a_name(field, content, label):
    assert read(field, content) == label


def test_a_label_within_a_json_is_named_by_its_path():
    assert read("json", b'{"about": {"kind": 2.0}}', "about.kind") == "2"
    with pytest.raises(ValueError, match=r"it has no 'about.name'"):
        read("json", b'{"about": {"kind": 2}}', "about.name")
    with pytest.raises(DataError, match=r"say which one with data.label_key=...; it has kind, url"):
        read("json", b'{"kind": "cat", "url": ""}')


@pytest.mark.parametrize(("field", "content"), [("cls", b""), ("txt", b" \n"), ("json", b"null"), ("json", b'""')])
def test_an_empty_label_is_none(field, content):
    assert read(field, content) is None


def test_a_label_may_be_an_array_of_one_number():
    content = io.BytesIO()
    np.save(content, np.array(7))
    assert read("1.npy", content.getvalue()) == "7"


def test_a_label_that_is_no_class_says_which_there_are():
    with pytest.raises(DataError, match=r"the label 'cow' is none of the 2 classes \(cat, dog\); name all of them"):
        Classes(("cat", "dog")).number("cow")
    with pytest.raises(DataError, match="the label '0' is none of the 2 classes"):
        Classes(("1", "2")).number("0")


def test_classes_that_occur_are_sorted_as_numbers_or_by_the_alphabet():
    assert classes_of(["10", "2", None, "2"]).names == ("2", "10")
    assert classes_of(["dog", "cat", "10"]).names == ("10", "cat", "dog")
    with pytest.raises(DataError, match="no sample has a label"):
        classes_of([None])


def test_classes_can_be_set_by_number_or_by_name():
    assert named_classes(3).number("2") == 2
    assert named_classes(["b", "a"]).number("a") == 1
    assert named_classes(["b", "a"]).number("0") == 0
