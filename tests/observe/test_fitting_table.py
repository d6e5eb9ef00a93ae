import io

import pytest
from rich.console import Console

from brim.observe.fitting_table import FittingColumn, fitting_table

COLUMNS = [
    FittingColumn("run", ["a-rather-long-name", "b"], 0, 8, right=False),
    FittingColumn("state", ["finished", "running"], 0, right=False),
    FittingColumn("steps", ["1,000", "2"], 1),
    FittingColumn("best", ["", "-"], 2),
    FittingColumn("two\nlines", ["x", "y"], 3),
]


def shown(columns, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(fitting_table(columns, width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [18, 25, 32, 46, 200])
def test_no_line_is_wider_than_the_terminal_and_none_is_broken(width):
    lines = shown(COLUMNS, width)
    assert len(lines) in (4, 5) and max(map(len, lines)) <= width
    assert "finished" in lines[-2] and "running" in lines[-1]


def test_columns_go_by_rank_and_what_says_nothing_goes_first():
    assert "steps" not in "".join(shown(COLUMNS, 22)) and "steps" in "".join(shown(COLUMNS, 25))
    assert "best" not in "".join(shown(COLUMNS, 200))


def test_a_name_is_cut_short_only_as_far_as_it_must_be():
    assert shown(COLUMNS, 200)[-2].startswith("a-rather-long-name  ")
    assert shown(COLUMNS, 25)[-2].startswith("a-rathe…  ")


def test_texts_are_shown_as_they_are():
    lines = shown([FittingColumn("run", ["[red]x[/red] :smile: \x1b[2J\n"], 0, right=False)], 80)
    assert lines[-1].strip() == "[red]x[/red] :smile: \\x1b[2J\\n"
