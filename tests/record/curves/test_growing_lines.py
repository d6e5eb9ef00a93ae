import json

from brim.record.curves import growing_lines
from brim.record.curves.growing_lines import GrowingLines


def append(path, text):
    with path.open("ab") as file:
        file.write(text)


def test_only_what_is_new_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = GrowingLines(path)
    assert list(lines.new()) == []
    append(path, b'{"a": 1}\n{"a": 2}\n')
    assert list(lines.new()) == [{"a": 1}, {"a": 2}]
    assert list(lines.new()) == []
    append(path, b'{"a": 3}\n')
    assert list(lines.new()) == [{"a": 3}]


def test_a_half_written_line_is_read_when_it_is_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = GrowingLines(path)
    append(path, '{"a": "é'.encode()[:-1])
    assert list(lines.new()) == []
    append(path, 'é"}'.encode()[1:])
    assert list(lines.new()) == [{"a": "é"}]  # before its end of line is there
    append(path, b'\nnonsense\n{"a": 2}\n')
    assert list(lines.new()) == [{"a": 2}]


def test_a_file_that_became_shorter_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = GrowingLines(path)
    path.write_text('{"a": 1}\n{"a": 2}\n')
    list(lines.new())
    path.write_text('{"a": 3}\n')
    assert lines.has_restarted() and list(lines.new()) == [{"a": 3}]
    path.unlink()
    assert lines.has_restarted() and list(lines.new()) == []


def test_lines_longer_than_what_is_read_at_once_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_lines, "AT_ONCE", 7)
    path = tmp_path / "a.jsonl"
    objects = [{"number": place, "text": "x" * place} for place in range(30)]
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    lines = GrowingLines(path)
    assert list(lines.new()) == objects and list(lines.new()) == []
