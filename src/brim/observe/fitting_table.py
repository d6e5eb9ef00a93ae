"""A table with as many columns as a terminal is wide enough for."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from brim.errors import printable

GAP = 2


@dataclass(frozen=True)
class FittingColumn:
    """Cells with a head of one or more lines. Those of low ``rank`` stay longest; one that may ``shrink`` is cut short.

    Cells are texts from anywhere: they are shown as they are, without markup or escape sequences.
    """

    head: str
    cells: Sequence[str]
    rank: int
    shrink: int | None = None  # to how many characters
    right: bool = True

    @property
    def widest(self) -> int:
        return max(cell_len(text) for text in (*self.head.split("\n"), *map(printable, self.cells)))

    @property
    def least(self) -> int:
        """How wide it has to be."""
        return self.widest if self.shrink is None else min(self.widest, self.shrink)


def fitting_table(columns: Sequence[FittingColumn], width: int) -> Table:
    """The columns that fit, in their order; those in which no cell has anything to say are left out first."""
    told = [column for column in columns if any(cell not in ("", "-") for cell in column.cells) or column.rank == 0]
    taken: set[int] = set()
    left = width
    for place, column in sorted(enumerate(told), key=lambda pair: pair[1].rank):
        if column.least <= left:
            taken.add(place)
            left -= column.least + GAP
    # Without edges, a column is followed by its padding and by the space that stands for a line: GAP together.
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    shown = [column for place, column in enumerate(told) if place in taken]
    left += GAP  # there is none behind the last one
    for column in shown:
        more = max(0, min(left, column.widest - column.least))
        left -= more
        table.add_column(
            column.head, justify="right" if column.right else "left", no_wrap=True, overflow="ellipsis",
            width=column.least + more,
        )  # fmt: skip
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
