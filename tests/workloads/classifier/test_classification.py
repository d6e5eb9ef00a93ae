import pytest
import torch
from helpers.pictures import COLOURS, coloured_shards, picture_bytes

from brim.errors import ConfigError, DataError
from brim.workloads.classifier import ConvClassifier, classify


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ConvClassifier(["blue", "green", "red"], "picture", (3, 16, 16), width=4, depth=1)


def test_samples_of_shards_are_classified_in_order_by_their_keys(model, tmp_path):
    shards = coloured_shards(tmp_path / "s", 8, per_shard=3)
    found = list(classify(model, shards, k=2, batch_size=3))
    assert [one.name for one in found] == [f"{number:04d}" for number in range(8)]
    assert all(len(one.classes) == len(one.probabilities) == 2 for one in found)
    assert all(one.probabilities[0] >= one.probabilities[1] for one in found)
    assert model.training  # as it was


def test_it_says_what_the_model_says(model, tmp_path):
    (tmp_path / "a.jpg").write_bytes(picture_bytes(COLOURS["red"]))
    (one,) = classify(model, tmp_path / "a.jpg", k=9)
    with torch.no_grad():
        expected = model.eval()(model.spec.reader()(memoryview(picture_bytes(COLOURS["red"])))[None]).softmax(1)[0]
    assert dict(zip(one.classes, one.probabilities, strict=True)) == pytest.approx(
        dict(zip(model.classes, expected.tolist(), strict=True)), rel=1e-5
    )


def test_folders_of_files_are_classified_and_other_files_left_alone(model, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.PNG").write_bytes(picture_bytes(kind="png"))
    (tmp_path / "a.jpg").write_bytes(picture_bytes())
    (tmp_path / "notes.txt").write_text("none")
    assert [one.name for one in classify(model, tmp_path)] == [str(tmp_path / "a.jpg"), str(tmp_path / "in" / "b.PNG")]


def test_what_cannot_be_classified_is_said(model, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"a\.jpg cannot be decoded: UnidentifiedImageError: it begins as no"):
        list(classify(model, [tmp_path / "a.jpg"]))
    with pytest.raises(DataError, match="there is no file or folder"):
        list(classify(model, [tmp_path / "nothing.jpg"]))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.heic").write_bytes(b"a picture of another kind")
    with pytest.raises(DataError, match=r"there is no picture \(jpg, .*\) in .*in$"):
        list(classify(model, tmp_path / "in"))
    with pytest.raises(ConfigError, match="k=0 must be"):
        list(classify(model, tmp_path, k=0))
    sounds = ConvClassifier(["a", "b"], "sound", (800,), rate=8000, width=4, depth=1, bands=8)
    with pytest.raises(ConfigError, match=r"holds pictures \(jpg\), and the model takes sounds"):
        list(classify(sounds, coloured_shards(tmp_path / "s", 3)))
