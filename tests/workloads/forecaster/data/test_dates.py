"""Dates as people write them."""

import numpy as np
import pandas as pd
import pytest

from brim.errors import DataError
from brim.workloads.forecaster.data.dates import as_dates, shown_time
from brim.workloads.forecaster.data.table import read_table


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["2016-07-01 00:00:00", "2016-07-01 01:00:00"], "2016-07-01T00"),
        (["2016-07", "2016-08"], "2016-07-01"),
        (["2016-07-01T02:00:00+02:00", "2016-07-01T03:00:00+02:00"], "2016-07-01T00"),
        (["2016-07-01T00:00:00Z"], "2016-07-01"),
        (["2016/07/01", "2016/07/02"], "2016-07-01"),
        (["31.12.2016", "01.01.2017"], "2016-12-31"),
        (["12/31/2016 13:00", "01/01/2017 14:00"], "2016-12-31T13"),
        (["31/12/2016", "01/01/2017"], "2016-12-31"),
        (["Jan 2016", "Feb 2016"], "2016-01-01"),
        (["20160701", "20160702"], "2016-07-01"),
    ],
)
def test_dates_are_read_in_the_ways_that_people_write_them(texts, first):
    assert as_dates(texts)[0] == np.datetime64(first)


@pytest.mark.parametrize("freq", ["D", "MS"])
def test_days_and_months_of_a_place_stay_its_own_over_a_change_of_the_clock(freq):
    zoned = pd.date_range("2024-01-01", periods=150, freq=freq, tz="Europe/Berlin")
    plain = zoned.tz_localize(None).to_numpy()
    assert (as_dates([one.isoformat() for one in zoned]) == plain).all()
    assert (read_table(pd.Series(0.0, index=zoned)).times == plain).all()


def test_hours_of_a_place_are_in_utc_where_each_is_there_once():
    zoned = pd.date_range("2024-10-26", periods=48, freq="h", tz="Europe/Berlin")
    found = as_dates([one.isoformat() for one in zoned])
    assert (np.diff(found) == np.timedelta64(1, "h")).all() and found[0] == np.datetime64("2024-10-25T22")


@pytest.mark.parametrize("freq", ["W", "D", "Q"])
def test_periods_have_no_time_zone(freq):
    assert not read_table(pd.Series(0.0, index=pd.period_range("2020-01-01", periods=9, freq=freq))).in_utc


@pytest.mark.parametrize("texts", [[], [""], ["monday"], ["2016-07-01", "later"], ["2016-13-01"]])
def test_what_is_no_date_is_none(texts):
    assert as_dates(texts) is None


def test_dates_that_can_be_read_in_two_ways_are_refused():
    with pytest.raises(DataError, match=r"can be read as %m/%d/%Y or %d/%m/%Y; write them as 2024-01-31"):
        as_dates(["01/02/2016", "02/02/2016"])


def test_days_that_are_months_either_way_are_one_date():
    assert as_dates(["01/01/2016", "02/02/2016"])[1] == np.datetime64("2016-02-02")


def test_a_time_is_shown_as_short_as_it_can_be():
    assert shown_time(np.datetime64("2024-01-31T13:00:00.000000")) == "2024-01-31 13:00:00"
    assert shown_time(np.int64(7)) == "7"
