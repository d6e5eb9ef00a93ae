"""MovieLens-1M as GroupLens ships it: users.dat, movies.dat and ratings.dat, ``::``-separated, in latin-1."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from brim.errors import DataError
from brim.workloads.recommender.dataset import Movie, Person, RecommenderDataset
from brim.workloads.recommender.files.original_ids import Parts, check_described, number_parts
from brim.workloads.recommender.files.split_files import SplitFiles, read_split
from brim.workloads.recommender.interactions import split_with_notes
from brim.workloads.recommender.number_table import read_number_table

AGES = {1: "under 18", 18: "18-24", 25: "25-34", 35: "35-44", 45: "45-49", 50: "50-55", 56: "56 or older"}
OCCUPATIONS = (
    "other", "educator", "artist", "clerical", "college student", "customer service", "doctor", "executive", "farmer",
    "homemaker", "K-12 student", "lawyer", "programmer", "retired", "salesman", "scientist", "self-employed",
    "engineer", "craftsman", "unemployed", "writer",
)  # fmt: skip


class ML1MDataset(RecommenderDataset):
    """MovieLens-1M from a folder.

    ``min_rating`` keeps ratings of at least that many stars; all are kept without it. Every user's pairs are split at
    random by ``split_ratio`` and ``seed``, unless ``split_files`` gives the split: a folder with train.tsv,
    validation.tsv (or valid.tsv) and test.tsv, or a mapping from split to file, each with a MovieLens user and movie
    id a line, or a folder with BARS' lists in JSON and their idmap.json. People and movies without any pair left are
    not part of the data set.

    >>> dataset = ML1MDataset("path/to/ml-1m", split_ratio=[0.8, 0.1, 0.1])  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path,
        split_ratio: Sequence[float] = (0.8, 0.1, 0.1),
        min_rating: int | None = None,
        seed: int = 0,
        split_files: SplitFiles | None = None,
    ) -> None:
        folder = Path(path)
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; `brim data ml-1m` says how to get MovieLens-1M")
        people, movies = read_people(folder / "users.dat"), read_movies(folder / "movies.dat")
        if split_files is None:
            parts: Parts = {"all": _read_ratings(folder / "ratings.dat", min_rating)}
        else:
            parts = read_split(split_files)
        numbered = number_parts(parts)
        check_described(numbered.user_ids, people, "users.dat", "user")
        check_described(numbered.item_ids, movies, "movies.dat", "movie")
        splits, notes = split_with_notes(numbered.pairs, split_ratio, seed)
        super().__init__(
            [people[user] for user in numbered.user_ids.tolist()],
            [movies[item] for item in numbered.item_ids.tolist()],
            splits,
            numbered.user_ids,
            numbered.item_ids,
            notes,
        )


def read_people(path: Path) -> dict[int, Person]:
    """users.dat: id, gender, age code, occupation code, zip code."""
    people = {}
    for number, (user, gender, age, occupation, _) in _rows(path, 5):
        if gender not in ("F", "M") or _int(age) not in AGES or not 0 <= _int(occupation) < len(OCCUPATIONS):
            raise DataError(f"{path}, line {number}: {gender!r}, {age!r}, {occupation!r} is no gender, age, occupation")
        people[_id(user, path, number)] = Person(gender, AGES[_int(age)], OCCUPATIONS[_int(occupation)])
    return people


def read_movies(path: Path) -> dict[int, Movie]:
    """movies.dat: id, title with year, genres separated by ``|``."""
    return {
        _id(movie, path, number): Movie(title, tuple(genres.split("|")))
        for number, (movie, title, genres) in _rows(path, 3)
    }


def _rows(path: Path, fields: int) -> list[tuple[int, list[str]]]:
    """Line numbers and fields of a small ``::``-separated file."""
    try:
        # Not splitlines(): to it some letters of latin-1's relatives end a line.
        lines = path.read_bytes().decode("latin-1").removesuffix("\n").split("\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; a MovieLens-1M folder has one") from error
    rows = [(number, line.removesuffix("\r").split("::")) for number, line in enumerate(lines, 1)]
    for number, row in rows:
        if len(row) != fields:
            raise DataError(f"{path}, line {number}: {len(row)} fields instead of {fields}; is it MovieLens-1M's?")
    return rows


def _int(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


def _id(text: str, path: Path, number: int) -> int:
    if _int(text) < 1:
        raise DataError(f"{path}, line {number}: {text[:40]!r} is not an id")
    return int(text)


def _read_ratings(path: Path, min_rating: int | None) -> tuple[np.ndarray, np.ndarray]:
    users, items, stars, _ = read_number_table(path, b"::", ("user id", "movie id", "rating", "timestamp"))
    if min_rating is not None:
        users, items = users[stars >= min_rating], items[stars >= min_rating]
    if not len(users):
        raise DataError(f"{path} has no rating of {min_rating or 1} or more stars; lower min_rating")
    return users, items
