import json

from helpers.records import data_of

from brim.record import RunFolder, RunPage, write_report
from brim.record.report.page_data import page_data
from brim.record.run_record import read_run


def test_the_report_of_an_empty_run_is_written(tmp_path):
    path = write_report(RunFolder.create(tmp_path / "mine"))
    assert path == tmp_path / "mine" / "report.html"
    data = data_of(path.read_text())
    assert (data["name"], data["ended"], data["series"], data["events"]) == ("mine", "unfinished", [], [])


def test_a_report_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path):
    folder = RunFolder.create(tmp_path)
    write_report(folder)
    folder.write("metrics.jsonl", '{"step": 1, "epoch": 1, "loss": 0.5}\n')
    assert data_of(write_report(folder).read_text())["series"][0]["value"] == [0.5]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoints", "metrics.jsonl", "report.html"]


def line(step, **numbers):
    return json.dumps({"time": float(step), "step": step, "epoch": 1, "loss": 1.0 / step, **numbers}) + "\n"


def test_a_page_that_is_written_again_shows_what_one_of_the_whole_run_shows(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    live = RunPage(folder)
    for first in range(1, 3_001, 250):
        with (folder.path / "metrics.jsonl").open("a") as file:
            file.writelines(line(step, step_ms=5.0 + step % 3) for step in range(first, first + 250))
        with (folder.path / "events.jsonl").open("a") as file:
            file.write(json.dumps({"time": float(first), "kind": "epoch", "line": f"from {first}"}) + "\n")
        again = data_of(live.write().read_text())
        assert again == data_of(write_report(folder).read_text())
    assert again["is_thinned"] and len(again["events"]) == 12 and again["key"]["steps"] == 3_000


def test_what_was_read_is_not_read_again(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "metrics.jsonl").write_text("".join(map(line, range(1, 101))))
    live, taken = RunPage(folder), []
    live.write()
    from brim.record.curves import growing_lines

    whole = growing_lines.json_object
    monkeypatch.setattr(growing_lines, "json_object", lambda text: taken.append(text) or whole(text))
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(line(101) + line(102)[:20])
    assert data_of(live.write().read_text())["key"]["steps"] == 101
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(line(102)[20:])
    assert data_of(live.write().read_text())["key"]["steps"] == 102
    assert [text.decode() for text in taken if text] == [line(101).strip(), line(102)[:20], line(102).strip()]


def test_a_run_that_begins_anew_in_its_folder_is_shown_anew(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "metrics.jsonl").write_text("".join(map(line, range(1, 50))))
    live = RunPage(folder)
    live.write()
    (folder.path / "metrics.jsonl").write_text(line(1))
    assert data_of(live.write().read_text()) == page_data(read_run(folder))
