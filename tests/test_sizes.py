import hypothesis.strategies as st
import pytest
from hypothesis import given

from brim.errors import ConfigError
from brim.sizes import known_length, parse_bytes, parse_memory, show_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("8GiB", 8 * GIB),
        ("8gib", 8 * GIB),
        (" 24 G ", 24 * GIB),
        ("500 MB", 500_000_000),
        ("1.5GiB", 3 * GIB // 2),
        (".5KiB", 512),
        ("2.K", 2048),
        ("1TB", 10**12),
        ("123", 123),
        ("123B", 123),
        (123, 123),
        (1.5e9, 1_500_000_000),
    ],
)
def test_amounts_as_people_write_them(written: str | float, size: int) -> None:
    assert parse_bytes(written) == size


@pytest.mark.parametrize(
    "written", ["", "much", "8GiBs", "-1GiB", "0", "0GiB", 0, -5, True, "1e9", "GiB", "8 Gi B", float("nan")]
)
def test_anything_else_is_refused_in_one_sentence(written: str | float) -> None:
    with pytest.raises(ConfigError, match=r"^limit=.* is not an amount of memory; write it as 8GiB or 500MB$"):
        parse_bytes(written, "limit")


@pytest.mark.parametrize("written", [float("inf"), "9" * 400])
def test_an_endless_amount_is_refused(written: str | float) -> None:
    with pytest.raises(ConfigError):
        parse_bytes(written)


@pytest.mark.parametrize("written", [8, "24", 79.2])
def test_memory_without_its_unit_is_no_memory_of_that_many_bytes(written: str | float) -> None:
    with pytest.raises(ConfigError, match=r"^memory=.* is an amount of \d+ bytes; write it with its unit, as 8GiB or"):
        parse_memory(written)
    assert parse_memory("1MiB") == 1 << 20


@pytest.mark.parametrize("written", [0.4, "0.4B"])
def test_less_than_a_byte_is_refused(written: str | float) -> None:
    with pytest.raises(ConfigError):
        parse_bytes(written)


@given(st.integers(1, 1 << 50))
def test_a_number_of_bytes_is_itself(size: int) -> None:
    assert parse_bytes(size) == parse_bytes(str(size)) == size


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0.0 MiB"), (3 << 19, "1.5 MiB"), (GIB, "1.00 GiB"), (-2 * GIB, "-2.00 GiB"), (1500 * GIB, "1,500.00 GiB")],
)
def test_shown_in_gib_from_one_gib_on(size: int, shown: str) -> None:
    assert show_bytes(size) == shown


def test_what_has_no_length_or_does_not_know_it_has_none():
    class Unknown:
        def __len__(self):
            raise NotImplementedError

    assert (known_length([1, 2]), known_length(iter([1])), known_length(Unknown())) == (2, None, None)
