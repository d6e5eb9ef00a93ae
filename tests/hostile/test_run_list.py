"""``brim runs`` over folders from anywhere: each is listed or passed over, and nothing of it acts on the terminal."""

import json
import os

import pytest
from helpers.command import Command
from helpers.runs import lock_run, write_run

ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r"
FILES = [
    "metrics.jsonl", "events.jsonl", "config.yaml", "model.json", "machine.json", "about.json", "result.json",
    "run.lock",
]  # fmt: skip


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


def assert_harmless(text):
    assert all(letter.isprintable() or letter == "\n" for letter in text)


@pytest.fixture
def folder(tmp_path):
    """A project with a run in which every text is hostile."""
    name = f"[red]{ESCAPES}"
    line = {"step": 1, "eval/" + ESCAPES: 0.5, "loss": 1.0}
    run = write_run(
        tmp_path / "runs" / name, [line], [{"kind": "failed", "line": ESCAPES}],
        config=f"{json.dumps(ESCAPES)}: {json.dumps(ESCAPES)}\n",
        about={"model": ESCAPES, ESCAPES: 1}, machine={"host": ESCAPES}, result={"monitor": ESCAPES},
    )  # fmt: skip
    write_run(tmp_path / "runs" / "plain", [{"step": 1, "loss": 2.0}])
    return tmp_path, run.name


def test_escape_sequences_in_names_and_texts_are_written_out(brim, folder):
    path, name = folder
    for arguments in (["runs"], ["runs", "compare", name, "plain"], ["watch", "--once"]):
        done = brim(path, *arguments)
        assert done.returncode == 0 and done.stderr == ""
        assert_harmless(done.stdout)
    assert "\\x1b[2J" in brim(path, "runs").stdout and "[red]" in brim(path, "runs").stdout
    assert json.loads(brim(path, "runs", "--json").stdout)[0]["model"] == ESCAPES


def test_escape_sequences_in_errors_are_written_out(brim, folder):
    path, _ = folder
    for arguments in (["runs", ESCAPES], ["runs", "compare", "plain", ESCAPES], ["watch", ESCAPES], ["train", ESCAPES]):
        done = brim(path, *arguments)
        assert done.returncode == 2 and done.stdout == ""
        assert_harmless(done.stderr)


def test_a_name_that_is_no_text_is_listed(brim, tmp_path):
    write_run(tmp_path / "runs" / os.fsdecode(b"run-\xff"), [{"step": 1}])
    done = brim(tmp_path, "runs")
    assert done.returncode == 0 and "run-\\udcff" in done.stdout
    assert len(json.loads(brim(tmp_path, "runs", "--json").stdout)) == 1


@pytest.mark.matrix(12)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\0", b"[" * 500, b"null", b'"text"', b"9" * 5000, b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}",
     b'{"time": 1e308, "step": 1, "loss": 1}\n{"time": -1e308, "step": 2, "loss": 1}', b'{"step": 1e308, "eval/a": 1}',
     b'{"step": NaN, "eval/a": Infinity, "time": "x"}', b'{"ended": {"a": []}, "model": 5, "steps": "x"}',
     b'{"process": 1e400, "machine": 1}', b'{"\\ud800": 1, "step": 1, "eval/\\ud800": 2, "model": "\\ud800"}',
     b'{"kind": "failed", "line": {"a": 1}}', b'{"kind": "interrupted", "by": [1]}', b"a: &a [*a]", b"? [a]\n: 1",
     b'{"monitor": ["a"], "higher_is_better": "x", "metrics": {"a": {"b": 1}}}', b'{"steps": 1e300, "epochs": -1e300}'],
    ids=lambda content: content[:20].decode("latin-1"),
)  # fmt: skip
def test_whatever_a_file_holds_its_run_is_listed_and_compared(brim, tmp_path, name, content):
    run = write_run(tmp_path / "runs" / "run", [{"step": 1, "loss": 1.0}], [{"kind": "note"}])
    (run / name).write_bytes(content)
    write_run(tmp_path / "runs" / "other", [{"step": 1, "loss": 1.0}])
    done = brim(tmp_path, "runs")
    assert done.returncode == 0 and "run" in done.stdout and done.stderr == ""
    done = brim(tmp_path, "runs", "compare", "run", "other")
    assert done.returncode == 0 and done.stderr == ""
    assert_harmless(done.stdout)
    for arguments in (["runs", "--json"], ["runs", "compare", "run", "other", "--json"]):
        json.loads(brim(tmp_path, *arguments).stdout)


@pytest.mark.parametrize("name", [name for name in FILES if name != "metrics.jsonl"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_that_is_none_is_not_waited_for(brim, tmp_path, name, make):
    run = write_run(tmp_path / "runs" / "run", [{"step": 1, "loss": 1.0}])
    (run / name).unlink(missing_ok=True)
    make(run / name)
    done = brim(tmp_path, "runs")
    assert done.returncode == 0 and "run" in done.stdout
    done = brim(tmp_path, "runs", "compare", "run", "run")
    assert done.returncode == 0 if make is os.mkdir or name == "run.lock" else "is no file, so" in done.stderr


@pytest.mark.slow
def test_thousands_of_runs_are_listed_and_each_is_read_once(brim, tmp_path, monkeypatch):
    from brim.observe import run_summary

    for number in range(2000):
        folder = tmp_path / "runs" / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text('{"time": 1.0, "step": 1, "epoch": 1, "loss": 1.0}\n')
    read = []
    whole = run_summary.scan_metrics
    monkeypatch.setattr(run_summary, "scan_metrics", lambda path: read.append(path) or whole(path))
    told = json.loads(brim(tmp_path, "runs", "--json").stdout)
    assert len(told) == 2000 == len(set(read)) == len(read)


def test_a_job_with_hostile_texts_is_watched(brim, folder):
    path, name = folder
    lock_run(path / "runs" / name, host=ESCAPES)
    done = brim(path, "watch", "--once")
    assert done.returncode == 0 and "\\x1b[2J" in done.stdout
    assert_harmless(done.stdout)
