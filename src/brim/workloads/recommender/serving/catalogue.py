"""The people and items of a data set by the ids that its users know, with titles and what each person has seen."""

from dataclasses import dataclass
from functools import cached_property

from brim.errors import DataError
from brim.workloads.recommender.dataset import Movie, RecommenderDataset
from brim.workloads.recommender.interactions import SPLITS
from brim.workloads.recommender.serving.item_lists import ItemLists


@dataclass(frozen=True)
class Catalogue:
    """A data set as it is asked for: its own ids outside, ids from 0 inside."""

    dataset: RecommenderDataset

    @cached_property
    def _user_rows(self) -> dict[int, int]:
        return {user: row for row, user in enumerate(self.dataset.user_ids.tolist())}

    @cached_property
    def _item_rows(self) -> dict[int, int]:
        return {item: row for row, item in enumerate(self.dataset.item_ids.tolist())}

    def user_row(self, user: int) -> int:
        """Their id from 0; raises DataError where there is no such person."""
        advice = "name what somebody new has watched with --like, or describe them with --text"
        return _row_of("user", user, self._user_rows, advice)

    def item_row(self, item: int) -> int:
        """Its id from 0; raises DataError where there is no such item."""
        return _row_of("item", item, self._item_rows, "give the text of a new one with --new-item")

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


def _row_of(kind: str, wanted: int, rows: dict[int, int], advice: str) -> int:
    if wanted not in rows:
        raise DataError(
            f"there is no {kind} {wanted} in the training data, which has {len(rows):,}, ids {min(rows)} to "
            f"{max(rows)}; {advice}"
        )
    return rows[wanted]
