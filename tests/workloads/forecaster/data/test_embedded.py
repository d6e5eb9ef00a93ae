import numpy as np

from brim.workloads.forecaster.data.embedded import DAYS, embedded_series


def test_the_same_seed_gives_the_same_and_another_another():
    assert np.array_equal(embedded_series(1).columns["sales"], embedded_series(1).columns["sales"])
    assert not np.array_equal(embedded_series(1).columns["sales"], embedded_series(2).columns["sales"])


def test_there_is_a_row_for_each_day_and_nothing_is_missing():
    columns = embedded_series().columns
    assert list(columns) == ["date", "visitors", "sales"] and {len(column) for column in columns.values()} == {DAYS}
    assert (np.diff(columns["date"]) == np.timedelta64(1, "D")).all()
    assert (columns["visitors"] > 0).all() and np.isfinite(columns["sales"]).all()


def test_a_week_can_be_learned_from_it():
    """The same day of the week before says more than the day before."""
    visitors = embedded_series().columns["visitors"]
    assert np.abs(visitors[7:] - visitors[:-7]).mean() < 0.6 * np.abs(visitors[1:] - visitors[:-1]).mean()
