"""Tables from files, frames, arrays and dictionaries."""

import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from brim.errors import DataError
from brim.workloads.forecaster.data.table import read_table


def table_of(tmp_path, text, name="a.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_table(str(tmp_path / name))


def test_a_csv_file_has_numbers_dates_and_texts(tmp_path):
    table = table_of(tmp_path, "date,y,shop\n2024-01-01,1.5,a\n2024-01-02,,b\n\n2024-01-03,NA,c\n")
    assert table.columns["date"].dtype == "datetime64[us]"
    np.testing.assert_equal(table.columns["y"], [1.5, np.nan, np.nan])
    assert table.columns["shop"].tolist() == ["a", "b", "c"]


def test_a_file_without_a_header_has_numbered_columns(tmp_path):
    assert list(table_of(tmp_path, "0.7,1.6\n0.8,1.5\n", "rates.txt").columns) == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        (",0,1\n2024-01-01,0.7,1.6\n2024-01-02,0.8,1.5\n", ["column0", "0", "1"], 2),
        ("date,0,1\n2024-01-01,0.7,1.6\n2024-01-02,0.8,1.5\n", ["date", "0", "1"], 2),
        ("shop,2023,2024\na,1,2\nb,3,4\n", ["0", "1", "2"], 3),  # nobody can know
        ("0,1\n0.7,1.6\n0.8,1.5\n", ["0", "1"], 2),
        ("0,1\n1,2\n2,3\n", ["0", "1"], 3),
        (",y\n0,0.7\n1,0.8\n", ["y"], 2),  # pandas numbers the rows
        (",y\n5,0.7\n6,0.8\n", ["column0", "y"], 2),
    ],
)
def test_columns_with_numbers_for_names_are_told_from_data(tmp_path, text, names, rows):
    table = table_of(tmp_path, text)
    assert (list(table.columns), len(table)) == (names, rows)


def test_an_index_with_dates_in_texts_or_with_years_is_the_time():
    texts = pd.DataFrame({"y": [1.0, 2.0]}, index=["2024-01-01", "2024-01-02"])
    assert read_table(texts).times[1] == np.datetime64("2024-01-02")
    assert list(read_table(pd.DataFrame({"y": [1.0]}, index=pd.Index([1990], name="year"))).columns) == ["year", "y"]
    assert read_table(pd.DataFrame({"y": [1.0]}, index=["a"])).times is None


def test_what_pandas_has_for_a_missing_value_is_missing():
    frame = pd.DataFrame({"y": pd.Series([1, pd.NA], dtype=object), "z": pd.array(["a", None], dtype="string")})
    columns = read_table(frame).columns
    np.testing.assert_equal(columns["y"], [1.0, np.nan])
    assert columns["z"].tolist() == ["a", ""]


def test_semicolons_go_with_decimal_commas(tmp_path):
    assert table_of(tmp_path, "tag;y\n2024-01-01;3,5\n2024-01-02;4\n").columns["y"].tolist() == [3.5, 4.0]


def test_tabs_and_a_byte_order_mark_are_read(tmp_path):
    assert list(table_of(tmp_path, "\ufeffday\ty\n1\t2\n").columns) == ["day", "y"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a,b\n", "has a header and no rows"),
        ("a,b\n1,2\n3\n", "row 2 has 1 cells where there are 2 columns"),
        ("a,a\n1,2\n", "the column 'a' is there twice"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, said):
    with pytest.raises(DataError, match=said):
        table_of(tmp_path, text)


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path):
    (tmp_path / "a.bin").touch()
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    for name, said in (
        ("none.csv", "there is no file"), ("none.parquet", "there is no file"),
        ("a.bin", "neither a CSV nor a Parquet"), ("bad.csv", "is not UTF-8 text"),
        ("bad.parquet", "cannot be read as Parquet"), ("", "is a folder"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=said):
            read_table(tmp_path / name)


def test_parquet_keeps_the_index_of_dates(tmp_path):
    frame = pd.DataFrame({"y": [1, 2]}, index=pd.date_range("2024-01-01", periods=2))
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert table.times[1] == np.datetime64("2024-01-02")
    assert table.columns["y"].tolist() == [1.0, 2.0]


def test_parquet_without_pandas_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DataError, match=r"pip install 'brim\[parquet\]'"):
        read_table(tmp_path / "a.parquet")


def test_a_frame_may_have_any_kind_of_column():
    frame = pd.DataFrame({
        "when": pd.date_range("2024-01-01", periods=2, tz="Europe/Paris"),
        "count": pd.array([1, None], dtype="Int64"),
        "flag": [True, False],
        "price": [Decimal("1.5"), None],
        "kind": pd.Categorical(["a", "b"]),
        "month": pd.period_range("2024-01", periods=2, freq="M"),
    })  # fmt: skip
    columns = read_table(frame).columns
    assert columns["when"][0] == np.datetime64("2024-01-01")  # a day of the place
    np.testing.assert_equal(columns["count"], [1.0, np.nan])
    assert columns["flag"].tolist() == [1.0, 0.0]
    np.testing.assert_equal(columns["price"], [1.5, np.nan])
    assert columns["kind"].tolist() == ["a", "b"]
    assert columns["month"][1] == np.datetime64("2024-02-01")


def test_a_series_of_pandas_and_a_frame_with_two_levels_are_tables():
    assert list(read_table(pd.Series([1, 2])).columns) == ["value"]
    two = pd.DataFrame({"y": [1.0]}, index=pd.MultiIndex.from_tuples([("a", 1)], names=["id", "t"]))
    assert list(read_table(two).columns) == ["id", "t", "y"]


@pytest.mark.parametrize("data", [np.arange(4), torch.arange(4), [1, 2, 3, 4], np.arange(4)[:, None]])
def test_an_array_is_a_table_of_its_columns(data):
    assert len(read_table(data)) == 4


@pytest.mark.parametrize(
    "data", [np.zeros((2, 2, 2)), np.array([]), object(), {"a": [1], "b": [1, 2]}, {}, pd.DataFrame()]
)
def test_what_is_no_table_is_refused_in_a_sentence(data):
    with pytest.raises(DataError):
        read_table(data)
