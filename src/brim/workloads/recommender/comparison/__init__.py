"""Models side by side: on all items, on those that are rarely rated, and on those that nobody rated yet.

In: a data set's splits and models that rank. Out: metrics with intervals.
"""

from brim.workloads.recommender.comparison.cold_items import AmongItems, GenrePopularity, GenreTaste, hold_out_items
from brim.workloads.recommender.comparison.judge import Judge, less_rated_half, only_items
from brim.workloads.recommender.comparison.rows import Interval, Row, difference_interval, mean_interval
from brim.workloads.recommender.comparison.settings import ComparisonSettings
from brim.workloads.recommender.comparison.side_by_side import Comparison, compare

__all__ = [
    "AmongItems",
    "Comparison",
    "ComparisonSettings",
    "GenrePopularity",
    "GenreTaste",
    "Interval",
    "Judge",
    "Row",
    "compare",
    "difference_interval",
    "hold_out_items",
    "less_rated_half",
    "mean_interval",
    "only_items",
]
