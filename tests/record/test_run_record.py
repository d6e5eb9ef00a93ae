import json
import os

from brim.record import RunFolder
from brim.record.run_record import Checkpoint, RunReader, read_run, with_wait_share


def test_a_run_that_wrote_nothing_is_empty(tmp_path):
    run = read_run(RunFolder.create(tmp_path / "mine"))
    assert run.name == "mine"
    assert not any((run.config, run.model, run.series, run.events, run.machine, run.result))


def test_the_parts_of_a_run_are_read_back(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.write("config.yaml", "workload: recommender  # mine\n")
    folder.write("metrics.jsonl", '{"time": 2.0, "step": 1, "epoch": 1, "loss": 0.5}\n')
    folder.write("events.jsonl", '{"time": 1.0, "kind": "note", "line": "hello"}\n')
    folder.write_json("model.json", {"model": "BPR"})
    folder.write_json("machine.json", {"cores": 2})
    folder.write_json("result.json", {"ended": "done"})
    run = read_run(folder)
    assert run.config == "workload: recommender  # mine\n"
    assert run.series["loss"].values == [0.5]
    assert run.events == [{"time": 1.0, "kind": "note", "line": "hello"}]
    assert (run.model, run.machine, run.result) == ({"model": "BPR"}, {"cores": 2}, {"ended": "done"})


def test_half_written_or_foreign_json_is_empty(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.write("result.json", '{"steps": 5')
    folder.write("machine.json", "[1, 2]")
    assert (read_run(folder).result, read_run(folder).machine) == ({}, {})


def test_the_name_of_a_run_in_the_current_folder_is_the_folders_own(tmp_path, monkeypatch):
    RunFolder.create(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    assert read_run(RunFolder.open(".")).name == "mine"


def test_checkpoints_are_those_in_the_folder(tmp_path):
    folder = RunFolder.create(tmp_path)
    assert not read_run(folder).is_resumable
    for name in ("step-000000200", "step-000000100", "step-other"):
        (folder.checkpoints / name).mkdir()
        os.utime(folder.checkpoints / name, (50.0, 50.0))
    assert read_run(folder).checkpoints == [Checkpoint(100, 50.0), Checkpoint(200, 50.0)]
    assert read_run(folder).is_resumable


def test_very_many_events_are_not_all_kept(tmp_path):
    folder = RunFolder.create(tmp_path)
    reader = RunReader(folder)
    for _ in range(5):
        with (tmp_path / "events.jsonl").open("a") as file:
            file.writelines(json.dumps({"kind": "epoch", "line": ""}) + "\n" for _ in range(1_000))
        run = reader.read()
        assert len(run.events) <= 2_000
    assert len(run.events) + run.events_left_out == 5_000


def test_the_share_of_waiting_is_of_the_line_it_stands_in():
    assert with_wait_share({"step": 1, "step_ms": 4.0, "feed/fetch_ms": 3.0})["feed/wait_share"] == 0.0
    for line in ({"step": 1}, {"step_ms": 0.0, "feed/wait_ms": 1.0}, {"step_ms": "x", "feed/wait_ms": 1.0}):
        assert with_wait_share(line) == line
