import pytest

from brim.errors import ConfigError
from brim.workloads.classifier.sample_fields import SampleFields, choose_fields


@pytest.mark.parametrize(
    ("there", "kind", "inputs", "label"),
    [
        (("jpg", "cls"), "picture", ("jpg",), "cls"),
        (("jpg", "jpeg", "png", "json", "cls"), "picture", ("jpg", "jpeg", "png"), "cls"),
        (("jpg", "seg.png", "cls"), "picture", ("jpg",), "cls"),
        (("image.png", "label.cls"), "picture", ("image.png",), "label.cls"),
        (("0.npy", "1.cls"), "array", ("0.npy",), "1.cls"),
        (("flac", "wav", "label.txt"), "sound", ("flac", "wav"), "label.txt"),
        (("jpg", "coarse.cls", "label.cls"), "picture", ("jpg",), "label.cls"),
        (("x.npy", "y.npy"), "array", ("x.npy",), "y.npy"),
    ],
)
def test_fields_are_told_by_their_extensions(there, kind, inputs, label):
    assert choose_fields(there, None, None) == SampleFields(kind, inputs, label)


def test_fields_can_be_named_in_any_capitals():
    found = choose_fields(("left.png", "right.png", "meta.json"), "Left.PNG", "meta.JSON")
    assert found == SampleFields("picture", ("left.png",), "meta.json")


@pytest.mark.parametrize(
    ("there", "given", "label", "sentence"),
    [
        (("left.png", "right.png", "cls"), None, None, "which of left.png, right.png is to be classified"),
        (("jpg", "txt"), None, None, "which field holds the label.*the shards have jpg, txt"),
        (("jpg", "a.cls", "b.cls"), None, None, "which of a.cls, b.cls is the label"),
        (("txt", "cls"), None, None, "no picture, sound or array to be classified, but txt"),
        (("jpg", "cls"), "png", None, "data.input='png': no sample has this field; the shards have jpg, cls"),
        (("jpg", "cls"), None, "kind", "data.label='kind': no sample has this field"),
        (("jpg", "txt", "cls"), "txt", None, "data.input='txt' is neither a picture nor a sound"),
    ],
)
def test_what_cannot_be_told_is_asked_for(there, given, label, sentence):
    with pytest.raises(ConfigError, match=sentence):
        choose_fields(there, given, label)


def test_a_prediction_needs_no_label():
    assert choose_fields(("jpg", "txt"), None, None, wants_label=False) == SampleFields("picture", ("jpg",), None)
