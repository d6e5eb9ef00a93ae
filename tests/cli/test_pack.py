import json
import subprocess
import sys

import pytest
from helpers.command import brim

from brim.data.tar import packing
from brim.data.tar.shards import Shards


@pytest.fixture(autouse=True)
def in_folder_with_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("cat", "dog"):
        (tmp_path / "in" / kind).mkdir(parents=True)
        for number in range(5):
            (tmp_path / "in" / kind / f"{number}.txt").write_text(f"{kind} {number}")


def test_a_folder_is_packed_and_how_to_read_it_is_told(monkeypatch, capsys, tmp_path):
    (tmp_path / "in" / "LICENSE").touch()
    assert brim(["data", "pack", "in", "out"], monkeypatch) == 0
    assert capsys.readouterr() == (
        "Packed 10 samples (txt) into 1 shard of 0.0 MiB in all.\n"
        "Left out 1 files without an extension, which belong to no sample.\n"
        "Now in out; read it: brim.Shards('out')\n",
        "",
    )
    assert Shards("out")[5] == {"__key__": "dog/0", "txt": "dog 0"}


def test_every_option_reaches_the_packing(monkeypatch, capsys):
    options = ["--samples-per-shard", "4", "--shard-size", "1MiB", "--labels", "folder", "--shuffle", "1", "--json"]
    assert brim(["data", "pack", "in", "out", *options], monkeypatch) == 0
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert summary.pop("bytes") > 0
    assert summary == {"folder": "out", "shards": 3, "samples": 10, "fields": ["txt", "cls"],
                       "classes": ["cat", "dog"], "left_out": 0}  # fmt: skip
    assert (out.count("\n"), err) == (1, "")
    labels = [sample["cls"] for sample in Shards("out").__getitems__(list(range(10)))]
    assert labels != sorted(labels)


def test_shards_that_are_there_need_force(monkeypatch, capsys):
    assert brim(["data", "pack", "in", "out"], monkeypatch) == 0
    capsys.readouterr()
    assert brim(["data", "pack", "in", "out"], monkeypatch) == 2
    assert capsys.readouterr().err == (
        "brim: out holds shard-000000.tar already; use force (--force) to replace its shards\n"
    )
    assert brim(["data", "pack", "in", "out", "--force"], monkeypatch) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing", "out"], "nothing is not a folder; name a folder of files to pack"),
        (["in", "in/out"], "in/out lies inside in, and would be packed itself; choose another folder"),
        (["in", "out", "--samples-per-shard", "0"], "samples_per_shard=0 must be a whole number of at least 1"),
        (["in", "out", "--shard-size", "x"], "shard_bytes='x' is not an amount of memory; write it as 8GiB or 500MB"),
        (["in", "out", "--labels", "rows"], "labels='rows' is not known; use 'folder'"),
        (["in"], "Missing argument 'OUT'. Try brim data pack --help."),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_leaves_nothing(arguments, sentence, monkeypatch, capsys, tmp_path):
    assert brim(["data", "pack", *arguments], monkeypatch) == 2
    assert capsys.readouterr() == ("", f"brim: {sentence}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_ctrl_c_says_that_nothing_has_changed(monkeypatch, capsys, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(packing.ShardWriter, "finish", interrupted)
    assert brim(["data", "pack", "in", "out"], monkeypatch) == 130
    assert capsys.readouterr() == ("", "brim: stopped by Ctrl-C; out is as it was\n")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_bar_is_on_stderr_of_a_terminal_only(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert brim(["data", "pack", "in", "out", "--json"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["samples"] == 10
    assert "packing" in err


def test_help_does_not_wait_for_torch():
    program = (
        "import sys\n"
        "from brim.cli.main import main\n"
        "sys.argv = ['brim', 'data', 'pack', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as exit:\n"
        "    assert exit.code == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
