import json
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from brim.engine.checkpoints import shared_files
from brim.engine.checkpoints.shared_files import (
    KEY,
    Reference,
    SharedFiles,
    checkpoint_damage,
    decode_references,
    encode_references,
    read_references,
    references_in,
)
from brim.engine.checkpoints.whole_folder import WholeFolder, checksum
from brim.errors import RunFolderError

NAME = "0" * 64 + ".safetensors"


@pytest.fixture
def files(tmp_path):
    return SharedFiles(tmp_path / "frozen")


def write_checkpoint(files, name, references):
    with WholeFolder(files.folder.parent / name) as aside:
        save_file({"own": torch.ones(1)}, str(aside / "model.safetensors"), encode_references(references))
    return files.folder.parent / name / "model.safetensors"


def test_what_is_stored_is_read_to_the_bit(files):
    tensors = {
        "a": torch.tensor([float("nan"), -0.0]), "turned": torch.arange(6.0).view(2, 3).t(), "flag": torch.tensor(True),
        "half": torch.ones(3).half(), "part": torch.arange(10)[2:5], "none": torch.empty(0, 3),
    }  # fmt: skip
    weights = write_checkpoint(files, "step-1", files.store(tensors))
    read = read_references(weights, references_in(weights))
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape
        assert read[name].contiguous().numpy().tobytes() == tensor.contiguous().numpy().tobytes()
    (file,) = files.folder.iterdir()
    assert file.stem == checksum(file)


def test_the_same_content_is_written_once_by_any_name_and_any_process(files):
    tensors = {"a": torch.ones(4), "b": torch.ones(4), "c": torch.zeros(4)}
    first = files.store(tensors)
    assert first["a"].key == first["b"].key and len(load_file(files.folder / first["a"].file)) == 2
    assert SharedFiles(files.folder).store({"renamed": torch.ones(4)})["renamed"] == first["a"]
    assert len(list(files.folder.iterdir())) == 1
    # Zeros of another shape or dtype have the same bytes, and are something else.
    assert SharedFiles(files.folder).store({"c": torch.zeros(2, 2)})["c"].file != first["c"].file


def test_a_file_that_is_damaged_is_not_referred_to_and_made_good(files):
    tensors = {"a": torch.arange(1000.0), "b": torch.ones(3)}
    reference = files.store(tensors)["a"]
    weights, file = write_checkpoint(files, "step-1", files.store(tensors)), files.folder / reference.file
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    assert checkpoint_damage(weights.parent) == f"its frozen weights {file} are not what was written"
    assert SharedFiles(files.folder).store(tensors)["a"] == reference
    assert checkpoint_damage(weights.parent) is None


def test_a_file_that_is_missing_is_named(files):
    weights = write_checkpoint(files, "step-1", files.store({"a": torch.ones(3)}))
    (file,) = files.folder.iterdir()
    file.unlink()
    assert f"frozen weights {file} are missing" in checkpoint_damage(weights.parent)
    with pytest.raises(ValueError, match="are missing; they belong"):
        read_references(weights, references_in(weights))


def test_a_file_that_is_lost_is_written_again_from_weights_that_are_the_same(files):
    tensors = {"a": torch.arange(1000.0), "b": torch.ones(3), "tied": torch.ones(3)}
    weights = write_checkpoint(files, "step-1", files.store(tensors))
    assert not files.rebuild(weights, tensors)  # nothing is lost
    (file,) = files.folder.iterdir()
    content = file.read_bytes()
    file.unlink()
    for others in ({**tensors, "a": -tensors["a"]}, {**tensors, "b": torch.ones(3, 1)}, {"a": tensors["a"]}):
        assert not SharedFiles(files.folder).rebuild(weights, others) and not file.exists()
    assert SharedFiles(files.folder).rebuild(weights, {**tensors, "more": torch.ones(1)})
    assert file.read_bytes() == content

    fewer = {name: one for name, one in references_in(weights).items() if name != "a"}
    file.unlink()
    assert not SharedFiles(files.folder).rebuild(write_checkpoint(files, "step-2", fewer), tensors)


def test_files_go_with_the_last_checkpoint_that_refers_to_them(files, tmp_path):
    old = write_checkpoint(files, "step-1", files.store({"a": torch.ones(3)}))
    hidden = write_checkpoint(files, ".before-end/best", files.store({"b": torch.zeros(3)}))
    files.store({"orphan": torch.ones(7)})
    (files.folder / shared_files.ASIDE).write_bytes(b"left by a kill")
    (files.folder / "notes.txt").write_text("somebody's")
    files.prune()
    left = {path.name for path in files.folder.iterdir()}
    assert left == {references_in(old)["a"].file, references_in(hidden)["b"].file, "notes.txt"}
    (files.folder / "notes.txt").unlink()
    for path in (old, hidden):
        path.unlink()
    files.prune()
    assert not files.folder.exists()


def test_nothing_goes_while_a_checkpoint_cannot_be_asked(files):
    files.store({"a": torch.ones(3)})
    weights = write_checkpoint(files, "step-1", {})
    weights.write_bytes(b"\x00" * 20)
    files.prune()
    assert len(list(files.folder.iterdir())) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(files, monkeypatch, error):
    def full(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(shared_files, "save_file", full)
        with pytest.raises(RunFolderError, match=r"cannot write frozen weights to .*No space left.*; free some space"):
            files.store({"a": torch.ones(3)})
    assert list(files.folder.iterdir()) == []
    assert files.has(files.store({"a": torch.ones(3)})["a"])


@pytest.mark.parametrize(
    "value",
    [[], {"a": "b"}, {"a": ["../../etc/passwd", "a", "c"]}, {"a": [NAME, 1, "c"]}, {"a": [f"../{NAME}", "a", "c"]},
     {"a": [NAME, "a"]}],
)  # fmt: skip
def test_references_that_are_not_brims_are_refused(value):
    with pytest.raises(ValueError, match="not brim's"):
        decode_references({KEY: json.dumps(value)})


def test_references_are_what_they_were():
    references = {"a": Reference(NAME, "a", "torch.float32 (3,) 00")}
    assert decode_references(encode_references(references)) == references
    assert encode_references({}) == {} == decode_references({"format": "pt"}) == decode_references(None)
