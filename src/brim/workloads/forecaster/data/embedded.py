"""A daily series that brim makes itself, so that the first run needs no file."""

import numpy as np

from brim.workloads.forecaster.data.table import Table

DAYS = 4 * 365
FIRST = np.datetime64("2020-01-01", "us")


def embedded_series(seed: int = 0) -> Table:
    """Visitors and sales of a shop: a week, a year, a trend that wanders, and chance. The same seed gives the same.

    >>> embedded_series().columns["visitors"].shape
    (1460,)
    """
    random = np.random.default_rng(seed)
    day = np.arange(DAYS)
    week = np.array([0.9, 0.85, 0.9, 1.0, 1.25, 1.5, 0.6])[day % 7]
    year = 1 + 0.2 * np.sin(2 * np.pi * (day - 100) / 365.25)
    level = 200 * np.exp(np.cumsum(random.normal(0.0002, 0.01, DAYS)))
    visitors = np.round(level * week * year * random.normal(1, 0.07, DAYS))
    sales = np.round(visitors * 4.2 * random.normal(1, 0.1, DAYS), 2)
    dates = FIRST + day * np.timedelta64(1, "D")
    return Table({"date": dates, "visitors": visitors, "sales": sales}, "the embedded series")
