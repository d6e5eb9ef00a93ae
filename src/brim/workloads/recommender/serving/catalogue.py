"""The people and items of a data set by the ids that its users know, with titles and what each person has seen."""

from dataclasses import dataclass
from functools import cached_property

from brim.errors import DataError
from brim.workloads.recommender.dataset import Movie, RecommenderDataset
from brim.workloads.recommender.interactions import SPLITS
from brim.workloads.recommender.serving.item_lists import ItemLists

Id = int | str


@dataclass(frozen=True)
class Catalogue:
    """A data set as it is asked for: its own ids outside, ids from 0 inside."""

    dataset: RecommenderDataset

    @cached_property
    def _user_rows(self) -> dict[Id, int]:
        return {user: row for row, user in enumerate(self.dataset.user_ids.tolist())}

    @cached_property
    def _item_rows(self) -> dict[Id, int]:
        return {item: row for row, item in enumerate(self.dataset.item_ids.tolist())}

    def user_row(self, user: Id) -> int:
        """Their id from 0; raises DataError where there is no such person."""
        advice = "name what somebody new has watched with --like, or describe them with --text"
        return _row_of("user", user, self._user_rows, advice)

    def item_row(self, item: Id) -> int:
        """Its id from 0; raises DataError where there is no such item."""
        return _row_of("item", item, self._item_rows, "give the text of a new one with --new-item")

    def user_id(self, row: int) -> Id:
        """Their id in the data set."""
        found: Id = self.dataset.user_ids[row].item()
        return found

    def item_id(self, row: int) -> Id:
        """Its id in the data set."""
        found: Id = self.dataset.item_ids[row].item()
        return found

    def movie(self, row: int) -> Movie:
        return self.dataset.movies[row]

    @cached_property
    def seen(self) -> ItemLists:
        """Who has seen what, in all splits, by ids from 0."""
        return ItemLists.of([self.dataset.get_split_data(split) for split in SPLITS])

    def seen_by(self, row: int) -> list[int]:
        """Ids from 0 of what a person has seen."""
        seen: list[int] = self.seen[row].tolist()
        return seen


def _row_of(kind: str, wanted: Id, rows: dict[Id, int], advice: str) -> int:
    """Ids come as texts from a command line, and are numbers where those of the data set are."""
    are_numbers = isinstance(next(iter(rows)), int)
    found = int(wanted) if are_numbers and isinstance(wanted, str) and wanted.isdecimal() else wanted
    if found not in rows:
        first, last = (min(rows), max(rows)) if are_numbers else (next(iter(rows)), next(reversed(rows)))
        raise DataError(
            f"there is no {kind} {wanted} in the training data, which has {len(rows):,}, ids {first} to {last}; "
            + advice
        )
    return rows[found]
