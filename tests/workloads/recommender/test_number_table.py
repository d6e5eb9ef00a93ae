import pytest
from hypothesis import given
from hypothesis import strategies as st

from brim.errors import DataError
from brim.workloads.recommender.number_table import read_number_table

COLUMNS = ("user id", "movie id", "rating", "timestamp")
FOUR = b"1::2::3::4\n"


def write(folder, content, name="table.dat"):
    path = folder / name
    path.write_bytes(content)
    return path


def read(path, separator=b"::", columns=COLUMNS, header=False):
    return [column.tolist() for column in read_number_table(path, separator, columns, header)]


def line_by_line(content, separator, columns):
    """The columns, one line and one field at a time; None where a line is not so many whole numbers."""
    rows = [line.rstrip(b"\r").split(separator) for line in content.removesuffix(b"\n").split(b"\n")]
    if any(len(row) != columns or not all(field.isdigit() for field in row) for row in rows):
        return None
    return [[int(row[column]) for row in rows] for column in range(columns)]


@st.composite
def tables(draw):
    columns = draw(st.integers(1, 5))
    number = st.integers(0, 10**18 - 1) | st.integers(0, 99)
    rows = draw(st.lists(st.lists(number, min_size=columns, max_size=columns), min_size=1, max_size=20))
    separator, end = draw(st.sampled_from([b"::", b"\t", b","])), draw(st.sampled_from([b"\n", b"\r\n"]))
    content = end.join(separator.join(b"%d" % number for number in row) for row in rows)
    return content + draw(st.sampled_from([b"", end])), separator, columns


@given(tables())
def test_a_table_is_what_reading_it_line_by_line_gives(tmp_path_factory, table):
    content, separator, columns = table
    path = write(tmp_path_factory.getbasetemp(), content)
    assert read(path, separator, tuple("abcde"[:columns])) == line_by_line(content, separator, columns)


lines = st.text("0123:x -.", min_size=1, max_size=8) | st.sampled_from(["1::2", "30::4", "1::2::3", "5", ""])


@given(st.lists(lines, min_size=1, max_size=4), st.booleans())
def test_what_line_by_line_is_no_table_is_refused_and_all_else_is_read(tmp_path_factory, lines, ends):
    content = "\n".join(lines).encode() + b"\n" * ends
    path = write(tmp_path_factory.getbasetemp(), content)
    expected = line_by_line(content, b"::", 2)
    if expected is not None:
        assert read(path, columns=("a", "b")) == expected
    else:
        with pytest.raises(DataError):
            read(path, columns=("a", "b"))


@pytest.mark.parametrize("content", [FOUR * 2, FOUR[:-1] + b"\r\n" + FOUR[:-1] + b"\r\n"])
def test_unix_and_windows_line_ends_read_the_same(tmp_path, content):
    assert read(write(tmp_path, content)) == [[1, 1], [2, 2], [3, 3], [4, 4]]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_last_line_needs_no_newline(tmp_path, end):
    assert read(write(tmp_path, b"1::2::3::4" + end + b"5::6::7::8")) == [[1, 5], [2, 6], [3, 7], [4, 8]]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_header_is_left_out_where_there_may_be_one(tmp_path, end):
    path = write(tmp_path, b"user_id\titem_id" + end + b"1\t2" + end)
    assert read(path, b"\t", ("user id", "movie id"), header=True) == [[1], [2]]


def test_a_table_that_may_have_a_header_and_has_none_is_read_from_its_first_line(tmp_path):
    assert read(write(tmp_path, b"1\t2\n3\t4\n"), b"\t", ("user id", "movie id"), header=True) == [[1, 3], [2, 4]]


def test_a_header_where_none_may_be_is_a_fault(tmp_path):
    with pytest.raises(DataError, match=r"line 1: 'user_id' is not a user id"):
        read(write(tmp_path, b"user_id\titem_id\n1\t2\n"), b"\t", ("user id", "movie id"))


def test_a_fault_after_a_header_is_counted_from_the_top_of_the_file(tmp_path):
    with pytest.raises(DataError, match=r"line 3: 'x' is not a movie id"):
        read(write(tmp_path, b"user_id\titem_id\n1\t2\n3\tx\n"), b"\t", ("user id", "movie id"), header=True)


FAULTS = {
    b"1::2::3": "3 fields separated by '::' instead of 4",
    b"1::2::3::4::5": "5 fields separated by '::' instead of 4",
    b"": "1 fields separated by '::' instead of 4",
    b"1,2,3,4": "1 fields separated by '::' instead of 4",
    b"1::2::3:::4": "':4' is not a timestamp",
    b"1::two::3::4": "'two' is not a movie id",
    b"1::2::3.5::4": "'3.5' is not a rating",
    b"1::2::3::-4": "'-4' is not a timestamp",
    b"+1::2::3::4": "'+1' is not a user id",
    b"1::::3::4": "'' is not a movie id",
    b"::2::3::4": "'' is not a user id",
    b"1::2::3::": "'' is not a timestamp",
    b"1 ::2::3::4": "'1 ' is not a user id",
    b"1::2::3 4::4": "'3 4' is not a rating",
    b"1 2 3 4": "1 fields separated by '::' instead of 4",
    b"1:: ::3 3::4": "' ' is not a movie id",  # as many numbers as there should be
    b"1::2::3::\xff": "'ÿ' is not a timestamp",
    b"1::2::3::1000000000000000000": "'1000000000000000000' is not a timestamp",
    b"9" * 30 + b"::2::3::4": f"'{'9' * 30}' is not a user id",
}


@pytest.mark.parametrize("line", FAULTS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("lines_before", [0, 2])
def test_a_malformed_line_is_named_by_file_line_and_fault(tmp_path, line, end, lines_before):
    good = FOUR[:-1] + end
    path = write(tmp_path, good * lines_before + line + end + good)
    with pytest.raises(DataError) as error:
        read(path)
    assert str(error.value) == f"{path}, line {lines_before + 1}: {FAULTS[line]}"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"1::2::3::4::5\n6::7::8\n", "line 1: 5 fields"),
        (b"1::2::3\n4::5::6::7::8\n", "line 1: 3 fields"),
        (FOUR + b"1::2::3\n" + FOUR + b"4::5::6::7::8\n", "line 2: 3 fields"),
        (b"1::2::3::\n4::5::6::7::8\n", "line 1: '' is not a timestamp"),
        (b"1::2::3::4 5\n::7::8::9\n", "line 1: '4 5' is not a timestamp"),
    ],
)
def test_faults_that_make_up_for_one_another_are_found(tmp_path, content, fault):
    """As many numbers, and mostly as many separators, as a table without a fault would hold."""
    with pytest.raises(DataError, match=fault):
        read(write(tmp_path, content))


def test_a_tab_is_called_a_tab(tmp_path):
    with pytest.raises(DataError, match=r"line 1: 1 fields separated by 'tab' instead of 2"):
        read(write(tmp_path, b"1 2\n"), b"\t", ("user id", "movie id"))


@pytest.mark.parametrize(("content", "header"), [(b"", False), (b"", True), (b"user_id\titem_id\n", True)])
def test_an_empty_table_is_refused(tmp_path, content, header):
    with pytest.raises(DataError, match=r"table\.dat is empty"):
        read(write(tmp_path, content), header=header)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*none\.dat: No such file"):
        read(tmp_path / "none.dat")


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*: Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"1::2::3::\n4::5::6::7\r8\n", b"1\r2::::3::4\n"])
def test_a_carriage_return_inside_a_line_is_a_fault_not_a_gap(tmp_path, content):
    path = tmp_path / "table.dat"
    path.write_bytes(content)
    with pytest.raises(DataError, match="line 1"):
        read_number_table(path, b"::", ("a", "b", "c", "d"))
