"""The table of rungs."""

import io

from rich.console import Console

from brim.cli.planning.frontier_view import shown_rows, table_of
from brim.frontier.rung import Costed, Rung

FAST = Costed(Rung(64, 1), 9 << 30, 0.1, 0.1, False)
SEEMED = Costed(Rung(32, 2, ("h.0",), 12), 4 << 30, 0.12, 0.1)
TAKEN = Costed(Rung(22, 3, ("h.0", "h.1"), 12, "chunked"), 3 << 30, 0.13, 0.1)
SLOW = Costed(Rung(1, 64, (), 12), 2 << 30, 12.345, 0.1)
WIDE = Costed(Rung(32, 2, (), 12, "chunked", True), 4 << 30, 0.11, 0.1)


def test_what_a_trace_refuted_is_told_not_to_fit_and_what_is_slower_stays():
    rows = shown_rows([SLOW, SEEMED, FAST, WIDE], TAKEN)
    assert [row.rung for row in rows] == [FAST.rung, WIDE.rung, SEEMED.rung, TAKEN.rung, SLOW.rung]
    assert [row.fits for row in rows] == [False, True, False, True, True]
    assert not any(row.fits for row in shown_rows([SLOW, SEEMED], None))


def test_the_table_fits_80_columns_and_marks_the_fastest():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table_of([FAST, SEEMED, TAKEN, SLOW, WIDE], TAKEN))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.endswith("<")] == [line for line in lines if "2/12" in line]
    assert "no fit" in next(line for line in lines if "9.00 GiB" in line)
    assert "12,345 ms" in "\n".join(lines)
