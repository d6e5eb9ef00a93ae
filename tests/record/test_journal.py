import json

import pytest

from brim.record import Journal, RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


def log_of(folder):
    """Lines of log.txt, without the time in front of each."""
    return [line.split(" ", 2)[2] for line in (folder.path / "log.txt").read_text().splitlines()]


def events_of(folder):
    return [json.loads(line) for line in (folder.path / "events.jsonl").read_text().splitlines()]


def test_a_line_is_said_on_stderr_and_kept_as_line_and_event(folder, capsys):
    journal = Journal()
    journal.attach(folder)
    journal.say("training on the CPU", "device", cores=4)
    assert capsys.readouterr() == ("", "training on the CPU\n")
    assert log_of(folder) == ["training on the CPU"]
    (event,) = events_of(folder)
    assert {"kind": "device", "line": "training on the CPU", "cores": 4}.items() <= event.items()


def test_each_line_is_in_the_files_at_once(folder):
    journal = Journal(quiet=True)
    journal.attach(folder)
    for count in range(1, 4):
        journal.say(f"line {count}")
        assert len(log_of(folder)) == len(events_of(folder)) == count


def test_what_was_said_before_there_was_a_folder_is_kept_first_and_once(folder):
    journal = Journal(quiet=True)
    journal.say("early")
    journal.warn("careful")
    journal.attach(folder)
    journal.say("late")
    journal.attach(folder)
    assert log_of(folder) == ["early", "warning: careful", "late"]
    assert [event["line"] for event in events_of(folder)] == ["early", "careful", "late"]


def test_a_run_that_goes_on_adds_to_its_journal(folder):
    for line in ("first part", "second part"):
        journal = Journal(quiet=True)
        journal.attach(folder)
        journal.say(line)
        journal.close()
    assert log_of(folder) == ["first part", "second part"]


def test_a_warning_is_marked_for_people_and_has_its_kind_for_programs(folder, capsys):
    journal = Journal()
    journal.attach(folder)
    journal.warn("no GPU found", "fallback", device="cpu")
    assert capsys.readouterr().err == "warning: no GPU found\n"
    assert log_of(folder) == ["warning: no GPU found"]
    assert events_of(folder)[0]["kind"] == "fallback"


def test_what_all_ranks_find_alike_is_said_by_the_first_one(capsys):
    for journal in (Journal(), Journal(speaker="rank 1")):
        journal.warn_for_all("the loss is constant")
        journal.warn_for_all(None)
    assert capsys.readouterr().err == "warning: the loss is constant\n"


def test_a_note_is_for_the_folder_alone(folder, capsys):
    journal = Journal()
    journal.attach(folder)
    journal.note("step 50")
    assert capsys.readouterr() == ("", "")
    assert log_of(folder) == ["step 50"]


def test_a_quiet_journal_prints_nothing_and_keeps_everything(folder, capsys):
    journal = Journal(quiet=True)
    journal.attach(folder)
    journal.say("one")
    journal.warn("two")
    assert capsys.readouterr() == ("", "")
    assert log_of(folder) == ["one", "warning: two"]


@pytest.mark.parametrize(
    "line",
    [
        "weights [64, 64] and [bold]tags[/bold] [/]",
        "a line that is much longer than any terminal " * 10,
        "at 12:100:30",
        "C:\\runs\\",
    ],
    ids=["brackets", "long", "colons", "backslash"],
)
def test_lines_appear_on_the_terminal_letter_by_letter(line, capsys):
    Journal().say(line)
    assert capsys.readouterr().err == line + "\n"


def test_facts_that_json_does_not_know_are_kept_as_text(folder):
    journal = Journal(quiet=True)
    journal.attach(folder)
    journal.say("saved", path=folder.path)
    assert events_of(folder)[0]["path"] == str(folder.path)


def test_a_terminal_that_cannot_be_written_to_ends_no_run(tmp_path):
    """Often it is a file, on a disk that may be full."""

    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        def flush(self):
            raise OSError(28, "No space left on device")

    journal = Journal()
    journal.console.file = Full()
    journal.attach(RunFolder.create(tmp_path / "run"))
    journal.say("said")
    journal.warn("warned")
    journal.close()
    assert "said" in (tmp_path / "run" / "log.txt").read_text()
