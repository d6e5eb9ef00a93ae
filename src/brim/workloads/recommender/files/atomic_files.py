"""RecBole's atomic files: columns with tabs between them, and a type behind each column's name (``user_id:token``)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brim.errors import DataError
from brim.workloads.recommender.dataset import Movie, Person, RecommenderDataset
from brim.workloads.recommender.files.original_ids import Parts, number_parts
from brim.workloads.recommender.files.split_files import Pairs, SplitFiles, read_split
from brim.workloads.recommender.interactions import split_with_notes
from brim.workloads.recommender.number_table import MOST_DIGITS

USER, ITEM, RATING = "user_id", "item_id", "rating"
TITLES, KINDS, YEARS = ("title", "name"), ("class", "genre", "categor"), ("year",)  # what names of columns hold
Table = dict[str, list[str]]


class AtomicDataset(RecommenderDataset):
    """A data set in RecBole's atomic files: NAME.inter, and where they are there NAME.item and NAME.user.

    An item's text is made of its title, year and genres (columns whose names hold ``title`` or ``name``, ``year``,
    and ``class``, ``genre`` or ``categor``), a person's of age, gender and occupation; without such files a text is
    the id alone. A pair that is there twice counts once.

    Args:
        path: the folder.
        split_ratio: shares of train, validation and test of every user's pairs, split at random.
        min_rating: keeps ratings of at least that; all are kept without it.
        seed: of the split.
        split_files: the split instead: a folder with train.tsv, validation.tsv (or valid.tsv) and test.tsv, or a
            mapping from split to file.

    >>> dataset = AtomicDataset("path/to/ml-100k", min_rating=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path,
        split_ratio: Sequence[float] = (0.8, 0.1, 0.1),
        min_rating: float | None = None,
        seed: int = 0,
        split_files: SplitFiles | None = None,
    ) -> None:
        folder = Path(path)
        if split_files is None:
            parts: Parts = {"all": _interactions(atomic_file(folder, "inter"), min_rating)}
        else:
            parts = read_split(split_files, _token_pairs)
        numbered = number_parts(_as_numbers(parts))
        splits, notes = split_with_notes(numbered.pairs, split_ratio, seed)
        people, movies = _described(folder, "user", USER), _described(folder, "item", ITEM)
        super().__init__(
            [_person(people.get(str(user), {})) for user in numbered.user_ids.tolist()],
            [_movie(str(item), movies.get(str(item), {})) for item in numbered.item_ids.tolist()],
            splits,
            numbered.user_ids,
            numbered.item_ids,
            [
                *notes,
                *_told_missing("item", numbered.item_ids.tolist(), movies, folder),
                *_told_missing("user", numbered.user_ids.tolist(), people, folder),
            ],
        )


def atomic_file(folder: Path, ending: str) -> Path:
    """The one file of a folder with that ending."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; name the one that holds NAME.inter")
    found = sorted(folder.glob(f"*.{ending}"))
    if len(found) != 1:
        what = f"has {len(found)} files *.{ending}" if found else f"has no file *.{ending}"
        raise DataError(f"{folder} {what}; a data set in RecBole's atomic files has one")
    return found[0]


def read_table(path: Path, without_header: tuple[str, ...] = ()) -> Table:
    """The columns of an atomic file by their names, without the types behind them.

    A file whose first line is of numbers has no header: its columns are those of ``without_header``, if there are any.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not in UTF-8: {error.reason}") from error
    if not lines[0].strip():
        raise DataError(f"{path} begins with no line of columns, such as user_id:token and item_id:token")
    if "\t" not in lines[0] and "," in lines[0]:
        raise DataError(f"{path} has commas between its columns; RecBole's files have tabs, so write it with them")
    names, *rows = [line.rstrip("\r").split("\t") for line in lines]
    if without_header and all(map(str.isdecimal, names[: len(without_header)])):
        names, rows = [*without_header, *map(str, range(len(without_header), len(names)))], [names, *rows]
    names = [name.partition(":")[0] for name in names]
    first = len(lines) - len(rows) + 1
    bad = next((at for at, row in enumerate(rows) if len(row) != len(names)), None)
    if bad is not None:
        raise DataError(
            f"{path}, line {bad + first}: {len(rows[bad])} fields separated by tabs instead of {len(names)}"
        )
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _column(table: Table, name: str, path: Path) -> list[str]:
    if name not in table:
        raise DataError(f"{path} has no column {name} in its first line; it has {', '.join(table)}")
    return table[name]


def _token_pairs(path: Path) -> Pairs:
    """Of a file of a split."""
    return _pairs(read_table(path, (USER, ITEM)), path)


def _pairs(table: Table, path: Path) -> Pairs:
    columns = [_column(table, name, path) for name in (USER, ITEM)]
    for name, column in zip((USER, ITEM), columns, strict=True):
        if not all(map(str.strip, column)):
            raise DataError(f"{path} has a line without {name}; fill it in, or drop the line")
    users, items = (np.array(column, dtype=object) for column in columns)
    return users, items


def _interactions(path: Path, min_rating: float | None) -> Pairs:
    table = read_table(path)
    users, items = _pairs(table, path)
    if min_rating is not None:
        kept = _ratings(_column(table, RATING, path), path) >= min_rating
        users, items = users[kept], items[kept]
    if not len(users):
        raise DataError(f"{path} has no pairs{'' if min_rating is None else f' rated {min_rating} or more'}")
    return users, items


def _ratings(cells: list[str], path: Path) -> np.ndarray:
    for row, cell in enumerate(cells, 2):
        try:
            is_number = float(cell) == float(cell)
        except ValueError:
            is_number = False
        if not is_number:
            raise DataError(f"{path}, line {row}: the rating {cell[:40]!r} is no number; fill it in, or drop the line")
    return np.array(cells, dtype=float)


def _as_numbers(parts: Parts) -> Parts:
    """Users, and items, as numbers where all of them are."""
    columns = []
    for place in (0, 1):
        tokens = [part[place] for part in parts.values()]
        are_numbers = all(_is_number(str(token)) for one in tokens for token in set(one.tolist()))
        columns.append([one.astype(np.int64 if are_numbers else str) for one in tokens])
    return dict(zip(parts, zip(*columns, strict=True), strict=True))


def _is_number(token: str) -> bool:
    """Whether a number says the same: 007 is a name."""
    return token.isascii() and token.isdecimal() and len(token) <= MOST_DIGITS and str(int(token)) == token


def _described(folder: Path, ending: str, key: str) -> dict[str, dict[str, str]]:
    """What the file says of each id; nothing where there is none."""
    if not list(folder.glob(f"*.{ending}")):
        return {}
    path = atomic_file(folder, ending)
    table = read_table(path)
    ids = _column(table, key, path)
    twice = next((one for one, count in Counter(ids).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{path} has several lines of {key} {twice!r}; keep the one that is right")
    return {one: {name: column[row] for name, column in table.items()} for row, one in enumerate(ids)}


def _told_missing(kind: str, ids: Sequence[Any], described: Mapping[str, Any], folder: Path) -> list[str]:
    """How many items, or users, a file that is there says nothing of: ids may be written otherwise in it."""
    missing = [str(one) for one in ids if str(one) not in described] if described else []
    if not missing:
        return []
    text = "the id alone" if kind == "item" else "that of anybody"
    return [
        f"{len(missing):,} of {len(ids):,} {kind}s are not in {folder}/*.{kind} ({missing[0]}): their text is {text}"
    ]


def _movie(item: str, described: Mapping[str, str]) -> Movie:
    title = _value(described, TITLES) or f"item {item}"
    year, kinds = _value(described, YEARS), _value(described, KINDS)
    separator = "," if "," in kinds else " "
    return Movie(
        f"{title} ({year})" if year and year not in title else title,
        tuple(kind.strip(" '\"[]") for kind in kinds.split(separator) if kind.strip(" '\"[]")),
    )


def _person(described: Mapping[str, str]) -> Person:
    return Person(*(described.get(name, "") for name in ("gender", "age", "occupation")))


def _value(described: Mapping[str, str], parts_of_names: tuple[str, ...]) -> str:
    """The first column whose name holds one of the words, but for the id."""
    found = (value for name, value in described.items() if name != ITEM and any(p in name for p in parts_of_names))
    return next(found, "").strip()
