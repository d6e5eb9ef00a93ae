import hashlib
import json
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path

import pytest
import torch
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from brim.data.tar import packing
from brim.data.tar.packing import pack
from brim.data.tar.scan import scan
from brim.data.tar.shards import Shards
from brim.errors import ConfigError, DataError

TEXTS = [{"txt": f"text {number}", "cls": number} for number in range(10)]


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_summary_says_what_was_packed(tmp_path):
    summary = pack(TEXTS, tmp_path / "a" / "b", samples_per_shard=4)
    assert (summary.shards, summary.samples, summary.fields) == (3, 10, ("txt", "cls"))
    assert summary.bytes == sum(path.stat().st_size for path in (tmp_path / "a" / "b").glob("*.tar"))
    assert sorted(files(tmp_path / "a" / "b")) == [
        "index.json", "index.npy", "shard-000000.tar", "shard-000001.tar", "shard-000002.tar"]  # fmt: skip


def test_the_same_samples_give_the_same_bytes(tmp_path):
    for name in "ab":
        pack(TEXTS, tmp_path / name, shuffle_seed=3)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_shard_is_a_tar_that_depends_on_no_time_and_no_owner(tmp_path):
    pack(TEXTS, tmp_path)
    with tarfile.open(tmp_path / "shard-000000.tar") as tar:
        members = tar.getmembers()
    assert [member.name for member in members[:3]] == ["000000000.txt", "000000000.cls", "000000001.txt"]
    assert {(member.mtime, member.uid, member.gid, member.uname, member.mode) for member in members} == {
        (0, 0, 0, "", 0o644)}  # fmt: skip


@examples(30)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a.bin", "b.bin", "c"]), st.binary(max_size=2000), min_size=1), min_size=1
    ),
    st.integers(1, 5),
    st.sampled_from(["", "größe/" + "n" * 150]),
)
def test_what_is_packed_is_what_a_scan_finds_and_what_is_read(tmp_path_factory, samples, per_shard, folder):
    out = tmp_path_factory.mktemp("shards")
    keyed = [{"__key__": f"{folder}{number}", **sample} for number, sample in enumerate(samples)]
    pack(keyed, out, samples_per_shard=per_shard)
    assert Shards(out).__getitems__(list(range(len(samples)))) == keyed
    described = json.loads((out / "index.json").read_text())["shards"]
    for shard in described:
        found = scan(out / shard["file"])
        assert found.problem is None
        assert (found.shard.sha256, list(found.shard.fields)) == (shard["sha256"], shard["fields"])
    (out / "index.json").unlink()
    assert Shards(out).__getitems__(list(range(len(samples)))) == keyed


def test_no_shard_is_larger_than_asked_unless_one_sample_is(tmp_path):
    pack([{"bin": bytes(size)} for size in (10_000, 10_000, 50_000, 10, 10)], tmp_path, shard_bytes=40_000)
    assert [path.stat().st_size for path in sorted(tmp_path.glob("*.tar"))] == [30_720, 61_440, 10_240]
    assert Shards(tmp_path).counts == [2, 1, 2]


def test_shards_whose_labels_stand_for_other_names_are_warned_about(tmp_path):
    for folder, name in (("first", "dog"), ("second", "cat"), ("third", "dog")):
        (tmp_path / folder / name).mkdir(parents=True)
        (tmp_path / folder / name / "a.txt").write_text("")
        pack(tmp_path / folder, tmp_path / f"packed-{folder}", labels="folder")
    first, second, third = (tmp_path / f"packed-{folder}" for folder in ("first", "second", "third"))
    with pytest.warns(UserWarning, match="other classes .*dog.* and .*cat"):
        assert Shards([first, second]).classes == ("dog",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Shards([first, third]).classes == ("dog",)


def test_a_folder_of_files_is_packed_with_its_labels(tmp_path):
    for name in ("dog/a.txt", "cat/b.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_text(name)
    summary = pack(tmp_path / "in", tmp_path / "out", labels="folder")
    data = Shards(tmp_path / "out")
    assert summary.classes == data.classes == ("cat", "dog")
    assert [data[0], data[1]] == [
        {"__key__": "cat/b", "txt": "cat/b.txt", "cls": 0},
        {"__key__": "dog/a", "txt": "dog/a.txt", "cls": 1},
    ]


def test_the_sums_in_the_index_are_those_of_the_files(tmp_path):
    pack(TEXTS, tmp_path, samples_per_shard=3)
    shards = json.loads((tmp_path / "index.json").read_text())["shards"]
    assert len(shards) == -(-len(TEXTS) // 3)
    for shard in shards:
        assert hashlib.sha256((tmp_path / shard["file"]).read_bytes()).hexdigest() == shard["sha256"]


def test_shards_that_are_there_are_replaced_only_by_force(tmp_path):
    pack(TEXTS, tmp_path, samples_per_shard=2)
    before = files(tmp_path)
    with pytest.raises(DataError, match=r"holds shard-000000\.tar already; use force \(--force\)"):
        pack(TEXTS[:1], tmp_path)
    assert files(tmp_path) == before
    pack(TEXTS[:1], tmp_path, force=True, prefix="new")
    assert sorted(files(tmp_path)) == ["index.json", "index.npy", "new-000000.tar"]


def test_force_does_not_replace_shards_of_somebody_else(tmp_path):
    (tmp_path / "mine.tar").touch()
    with pytest.raises(DataError, match=r"mine\.tar was not packed by brim, so it is not replaced"):
        pack(TEXTS, tmp_path, force=True)
    assert files(tmp_path) == {"mine.tar": b""}


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "README").write_text("mine")
    pack(TEXTS, tmp_path)
    assert (tmp_path / "README").read_text() == "mine"


def failing(after, error):
    yield from TEXTS[:after]
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("theirs")])
def test_an_error_or_ctrl_c_leaves_nothing(tmp_path, error):
    with pytest.raises(type(error)):
        pack(failing(5, error), tmp_path / "a" / "b", samples_per_shard=2)
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_shards_that_were_there(tmp_path):
    pack(TEXTS, tmp_path)
    before = files(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        pack(failing(5, KeyboardInterrupt()), tmp_path, force=True)
    assert files(tmp_path) == before


@pytest.mark.parametrize("moves", range(3 + 4))  # three old files go, four new ones come
def test_ctrl_c_while_files_are_put_in_place_leaves_the_shards_that_were_there(tmp_path, monkeypatch, moves):
    pack(TEXTS, tmp_path)
    before, rename, done = files(tmp_path), Path.rename, []

    def interrupted(start, end):
        if len(done) == moves:
            done.append(None)
            raise KeyboardInterrupt
        done.append(None)
        return rename(start, end)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pack(TEXTS, tmp_path, force=True, samples_per_shard=5)
    assert files(tmp_path) == before


def test_a_killed_packing_is_known_as_unfinished_and_force_starts_anew(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from brim.data.tar.packing import pack\n"
        "rename = Path.rename\n"
        "def killed(start, end):\n"
        "    rename(start, end)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Path.rename = killed\n"
        "pack(['a', 'b'], sys.argv[1], samples_per_shard=1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)])
    assert done.returncode == -9
    assert [path.name for path in tmp_path.glob("*.tar")] == ["shard-000000.tar"]
    with pytest.raises(DataError, match="was not finished"):
        Shards(tmp_path)
    with pytest.raises(DataError, match="another packing is at work, or was killed"):
        pack(TEXTS, tmp_path)
    pack(TEXTS, tmp_path, force=True)
    assert len(Shards(tmp_path)) == 10
    assert not (tmp_path / ".packing").exists()


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packing.ShardWriter, "_write", full)
    with pytest.raises(DataError, match=r"cannot write to .*: No space left on device; choose another folder"):
        pack(TEXTS, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write to .*file: "):
        pack(TEXTS, tmp_path / "file")


def test_a_target_inside_the_source_is_refused(tmp_path):
    (tmp_path / "a.txt").touch()
    for out in (tmp_path, tmp_path / "out"):
        with pytest.raises(ConfigError, match="lies inside"):
            pack(tmp_path, out)


def test_nothing_to_pack_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="there is no sample to pack"):
        pack([], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_two_samples_in_a_row_with_one_key_are_refused(tmp_path):
    with pytest.raises(DataError, match="two samples in a row have the key 'a'"):
        pack([{"__key__": "a", "txt": ""}, {"__key__": "a", "cls": 1}], tmp_path)


@pytest.mark.parametrize(
    "settings",
    [{"samples_per_shard": 0}, {"samples_per_shard": 1.5}, {"shard_bytes": "many"}, {"prefix": "../x"}, {"prefix": ""},
     {"labels": "folder"}, {"prefix": ".x"}],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_refused_before_anything_is_written(tmp_path, settings):
    with pytest.raises(ConfigError):
        pack(TEXTS, tmp_path / "out", **settings)
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_samples(tmp_path):
    told = []
    pack(TEXTS[:3], tmp_path / "a", on_sample=lambda *numbers: told.append(numbers))
    pack(iter(TEXTS[:1]), tmp_path / "b", on_sample=lambda *numbers: told.append(numbers))
    assert told == [(1, 3), (2, 3), (3, 3), (1, None)]


def test_a_data_set_of_tensors_comes_back(tmp_path):
    x, y = torch.randn(5, 3), torch.arange(5)
    pack(torch.utils.data.TensorDataset(x, y), tmp_path)
    samples = Shards(tmp_path).__getitems__(list(range(5)))
    assert torch.equal(torch.stack([sample["0.npy"] for sample in samples]), x)
    assert torch.equal(torch.stack([sample["1.npy"] for sample in samples]), y)
