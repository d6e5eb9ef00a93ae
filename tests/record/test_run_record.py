from brim.record import RunFolder
from brim.record.run_record import read_run


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
    assert run.series["loss"][0].value == 0.5
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
