"""Series out of tables: which column is what, rows on a grid, gaps told."""

import numpy as np
import pandas as pd
import pytest

from brim.errors import BrimError, ConfigError, DataError
from brim.workloads.forecaster import SeriesDataset
from brim.workloads.forecaster.data.series import Columns, carry_forward, series_of, without_empty
from brim.workloads.forecaster.data.table import read_table

TEN_DAYS = pd.date_range("2024-01-01", periods=10)


def read(data, target=(), time=None, series=None, known=(), static=()):
    table = read_table(data)
    return series_of(table, Columns.found(table, target, time, series, known, static))


def daily(rows=10, **columns):
    return pd.DataFrame({"date": pd.date_range("2024-01-01", periods=rows), **(columns or {"y": np.arange(rows)})})


def test_dates_are_found_and_all_other_numbers_are_targets():
    found = read(daily(y=np.arange(10), z=np.arange(10), shop=["a"] * 10))
    assert found.columns == Columns(("y", "z"), "date")
    assert str(found.step) == "day"
    assert found.series[0].values.shape == (10, 2)


def test_an_index_of_dates_is_the_time():
    found = read(daily().set_index("date"))
    assert found.columns.time is None and found.has_dates


def test_rows_are_put_in_order_and_that_is_told():
    found = read(daily().iloc[::-1])
    assert found.series[0].values.ravel().tolist() == list(range(10))
    assert found.notes == ("the rows of the series were put into the order of their times",)


def test_missing_rows_and_values_are_missing_and_told():
    frame = daily(10, y=np.arange(10.0)).drop([4, 5])
    frame.loc[7, "y"] = np.nan
    found = read(frame)
    np.testing.assert_equal(found.series[0].values.ravel(), [0, 1, 2, 3, np.nan, np.nan, 6, np.nan, 8, 9])
    assert found.notes[0] == "2 steps (day) had no row, and count as missing"
    assert found.notes[1].startswith("y: 3 of 10 values are missing")


def test_series_below_each_other_are_told_apart_by_their_column():
    frame = pd.concat([daily(5, id=["b"] * 5, y=np.arange(5)), daily(8, id=["a"] * 8, y=np.arange(8))])
    found = read(frame, series="id")
    assert [(one.name, len(one)) for one in found.series] == [("b", 5), ("a", 8)]


def test_numbers_name_series_as_well():
    frame = pd.concat([daily(5, id=[7] * 5, y=np.arange(5)), daily(8, id=[8] * 8, y=np.arange(8))])
    assert [one.name for one in read(frame, series="id").series] == ["7", "8"]
    frame["id"] += 1_000_000
    assert [one.name for one in read(frame, series="id").series] == ["1000007", "1000008"]


def test_rows_after_the_last_value_are_the_known_future():
    frame = daily(10, y=[*range(7), np.nan, np.nan, np.nan], price=np.arange(10))
    one = read(frame, target=("y",), known=("price",)).series[0]
    assert len(one) == 7
    assert one.ahead.ravel().tolist() == [7, 8, 9]


def test_a_series_begins_with_its_first_value():
    one = read(daily(10, y=[np.nan, np.nan, *range(8)])).series[0]
    assert len(one) == 8 and one.times[0] == np.datetime64("2024-01-03")


def test_static_columns_are_numbers_or_categories():
    frame = pd.concat([daily(4, id=[name] * 4, kind=[kind] * 4, area=[area] * 4, y=np.arange(4))
                       for name, kind, area in (("a", "x", 1.0), ("b", "z", 2.0))])  # fmt: skip
    found = read(frame, target=("y",), series="id", static=("kind", "area"))
    assert [one.static.tolist() for one in found.series] == [[1, 0, 1], [0, 1, 2]]
    assert Columns.from_json(found.columns.as_json()) == found.columns


def test_years_are_dates():
    found = read(pd.DataFrame({"year": [1990, 1991, 1992], "y": [1, 2, 3]}))
    assert found.series[0].times[-1] == np.datetime64("1992-01-01")


def test_steps_without_dates_are_counted():
    found = read(np.arange(5))
    assert not found.has_dates and found.series[0].times.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("frame", "named", "said"),
    [
        (pd.concat([daily(3), daily(3)]), {}, "has 2024-01-01 twice; name the column that tells series apart"),
        (pd.concat([daily(3, shop=["a"] * 3, y=range(3)), daily(3, shop=["b"] * 3, y=range(3))]), {}, "series=shop"),
        (daily(y=["1,000"] * 10), {}, "no column of numbers to forecast; it has date .*, y \\('1,000'\\)"),
        (daily(), {"target": ("z",)}, "has no column 'z' \\(target\\); it has date, y"),
        (daily(shop=["a"] * 10), {}, "has no column of numbers to forecast"),
        (daily(y=range(10), z=[*range(9), "closed"]), {}, r"the column 'z' holds 'closed' among numbers \(row 10\)"),
        (daily(shop=["a"] * 10), {"target": ("shop",)}, "is not made of numbers \\(it holds 'a'\\)"),
        (daily(y=[np.inf] * 10), {}, "the column 'y' is infinite in row 1"),
        (daily(), {"target": ("y",), "known": ("y",)}, "named for two things"),
        (daily(y=range(10), z=range(10)), {"target": ("y",), "static": ("z",)}, "'z' changes within the series"),
        (daily(when=TEN_DAYS, then=TEN_DAYS).drop(columns="date"), {}, "several columns of dates"),
        (daily(id=["a", None] * 5, y=range(10)), {"series": "id"}, "row 2 has no value in 'id'"),
        (daily(id=[2**53 + row // 5 for row in range(10)], y=range(10)), {"series": "id"}, "a letter in front of them"),
        (pd.DataFrame({"when": ["soon"] * 3, "y": range(3)}), {"time": "when"}, "does not hold dates"),
        (pd.DataFrame({"t": [0.5, 1.5], "y": range(2)}), {"time": "t"}, "neither dates nor whole numbers"),
        (pd.DataFrame({"date": [pd.Timestamp("2024-01-01"), pd.NaT], "y": [1, 2]}), {}, "row 2 has no date"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(frame, named, said):
    with pytest.raises((DataError, ConfigError), match=said) as refused:
        read(frame, **named)
    assert isinstance(refused.value, BrimError)


def test_missing_covariates_are_told_and_are_the_mean_of_training():
    frame = daily(40, y=np.arange(40.0), price=[np.nan, np.nan, *[99.0, 101.0] * 19])
    made = SeriesDataset(frame, 10, 5, target="y", known="price")
    assert any(note.startswith("price: 2 of 40 known values are missing") for note in made.notes)
    assert made.known[:2].tolist() == [[0.0], [0.0]]
    both = pd.concat([frame.assign(id=name, area=area) for name, area in (("a", 3.0), ("b", 5.0), ("c", np.nan))])
    made = SeriesDataset(both, 10, 5, target="y", series="id", static="area")
    assert made.static.ravel().tolist() == [-1.0, 1.0, 0.0]
    assert any("1 series lack a static number" in note for note in made.notes)


def test_a_covariate_that_training_knew_as_a_constant_is_not_divided_by_its_rounding():
    frame = daily(40, y=np.arange(40.0), price=[0.1] * 30 + [0.2] * 10)
    assert float(SeriesDataset(frame, 10, 5, target="y", known="price").known.abs().max()) == pytest.approx(0.1)


def test_a_column_to_forecast_that_is_empty_is_refused_and_not_forecast_as_a_number():
    frame = daily(60, y=np.arange(60.0), z=[np.nan] * 60)
    with pytest.raises(DataError, match="the column 'z' has no value: every cell is empty"):
        SeriesDataset(frame, 10, 5)
    assert SeriesDataset(frame, 10, 5, target="y").channels == ("y",)


def test_series_without_a_value_are_left_out_and_none_at_all_is_refused():
    frame = pd.concat([daily(4, id=["a"] * 4, y=[1.0, 2, 3, 4]), daily(4, id=["b"] * 4, y=[np.nan] * 4)])
    found = without_empty(read(frame, series="id"))
    assert [one.name for one in found.series] == ["a"]
    assert any("1 series without any value are left out (b)" in note for note in found.notes)
    with pytest.raises(DataError, match="every cell is empty"):
        without_empty(read(daily(4, y=[np.nan] * 4)))


HOURS = pd.date_range("2024-03-30", periods=48, freq="h", tz="Europe/Berlin")
IN_UTC = "times with a time zone are taken in UTC, in which those of a forecast are too"


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (HOURS, True), (HOURS.astype(str), True), (HOURS.tz_convert("UTC"), False), (HOURS.tz_localize(None), False),
        (pd.date_range("2024-03-30", periods=48, tz="Europe/Berlin"), False),
    ],
)  # fmt: skip
def test_hours_of_a_place_that_are_brought_to_utc_are_told(times, told, tmp_path):
    frame = pd.DataFrame({"time": times, "y": np.arange(48.0)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for given in (frame, frame.set_index("time"), str(tmp_path / "a.csv")):
        assert (IN_UTC in SeriesDataset(given, 8, 4).notes) == told
    assert (IN_UTC in SeriesDataset([frame.set_index("time")] * 2, 8, 4).notes) == told


def test_values_are_carried_forward_and_never_back():
    values = np.array([[np.nan, 1], [2, np.nan], [np.nan, np.nan]])
    np.testing.assert_equal(carry_forward(values), [[np.nan, 1], [2, 1], [2, 1]])
