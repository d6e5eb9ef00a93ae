"""A few cases of the fuzzer for each reader, the same every time; ``python benchmarks/fuzz.py`` tries many more."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CASES = 100
READERS = ["configuration", "checkpoint", "weights", "page", "model", "shards", "cache", "movielens", "archive"]


@pytest.fixture(scope="module")
def fuzz():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import fuzz

        yield fuzz
    finally:
        sys.path.remove(str(BENCHMARKS))


def outcomes(fuzz, reader, folder, seed=0):
    return [
        fuzz.try_case(fuzz.READERS[reader], fuzz.name_of_case(seed, reader, n), folder / "case") for n in range(CASES)
    ]


@pytest.mark.matrix(4)
@pytest.mark.parametrize("reader", READERS)
def test_nothing_but_errors_of_brims_comes_out(fuzz, reader, tmp_path):
    found = outcomes(fuzz, reader, tmp_path)
    assert [one.what for one in found if one.kind == "failed"] == []
    assert {one.kind for one in found} <= {"read", "refused"}


def test_every_reader_is_tried(fuzz):
    assert list(fuzz.READERS) == READERS


@pytest.mark.parametrize("reader", READERS)
def test_valid_files_are_read_and_changed_ones_are_mostly_not_the_same(fuzz, reader, tmp_path):
    chosen = fuzz.READERS[reader]
    chosen.read(tmp_path / "valid", chosen.prepare("", tmp_path / "valid", spoiled=False))
    changed = 0
    for number in range(20):
        chosen.prepare(f"{number}", tmp_path / "case")
        found = {
            p.relative_to(tmp_path / "case").as_posix(): p.read_bytes()
            for p in (tmp_path / "case").rglob("*")
            if p.is_file()
        }
        changed += found != chosen.valid
    assert changed >= 15


def test_a_case_is_made_from_its_name_alone(fuzz, tmp_path):
    reader = fuzz.READERS["shards"]
    for folder in ("one", "two"):
        reader.prepare("0 shards:7", tmp_path / folder)
    files = [{p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()} for folder in ("one", "two")]
    assert files[0] == files[1]


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), RecursionError(), AssertionError("not plausible")])
def test_any_other_error_is_a_failure(fuzz, tmp_path, error):
    def read(folder, random):
        raise error

    reader = type(fuzz.READERS["page"])(lambda folder: (folder / "a").touch(), lambda random, files: None, read)
    outcome = fuzz.try_case(reader, "0 any:0", tmp_path / "case")
    assert outcome.kind == "failed"
    assert type(error).__name__ in outcome.what
