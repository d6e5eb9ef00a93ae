"""What a run shows in a notebook: one output of a cell that is drawn anew, and a result with a table and a chart.

In: lines, the state of a bar, a run folder. Out: HTML that fetches nothing and runs nothing, with plain text beside it.
"""

from brim.record.notebook.cell_view import BarState, CellView
from brim.record.notebook.result_card import result_card

__all__ = ["BarState", "CellView", "result_card"]
