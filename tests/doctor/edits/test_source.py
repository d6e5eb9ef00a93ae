import pytest
from helpers.observations import finding, loader

from brim.doctor.edits.source import diff_of
from brim.doctor.order import Cures


def test_windows_line_ends_and_a_last_line_without_an_end_are_kept(suggested):
    text = "loader = DataLoader(\r\n    data)\r\nx = 1"
    wanted = finding("no-workers", cures=Cures(num_workers=2))
    made = suggested(text, wanted, loaders=(loader(line="train.py:1"),))
    assert made == "loader = DataLoader(\r\n    data, num_workers=2)\r\nx = 1"


@pytest.mark.parametrize("text", ["loader = DataLoader(data\n", "\ufeffloader = DataLoader(data)\n", "a = 1\rb = 2\r"])
def test_files_that_cannot_be_read_for_certain_get_no_diff(suggested, text):
    wanted = finding("no-workers", cures=Cures(num_workers=2))
    assert suggested(text, wanted, loaders=(loader(line="train.py:1"),)) is None


def test_a_last_line_without_an_end_is_marked():
    made = diff_of("a.py", "x = 1", "x = 2")
    assert made.count("\\ No newline at end of file") == 2 and "-x = 1\n" in made and "+x = 2\n" in made


def test_only_line_feeds_end_lines():
    assert diff_of("a.py", "x = '\x0c'\ny = 1\n", "x = '\x0c'\ny = 2\n").count("\n") == 6
