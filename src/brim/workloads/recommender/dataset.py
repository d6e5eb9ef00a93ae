"""A recommender's data set: people and movies with their texts, and who interacted with what, already split."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brim.errors import ConfigError
from brim.workloads.recommender.interactions import SPLITS, Interactions


@dataclass(frozen=True)
class Movie:
    """What is known of an item."""

    title: str
    genres: tuple[str, ...]

    def text(self) -> str:
        genres = f" Genres: {', '.join(self.genres)}." if self.genres else ""
        return f"Movie: {self.title}.{genres}"


@dataclass(frozen=True)
class Person:
    """What is known of a user, empty where nothing is. ``age`` is in words, as MovieLens has ranges."""

    gender: str
    age: str
    occupation: str

    def text(self) -> str:
        gender = {"F": "woman", "M": "man"}.get(self.gender, "person")
        age = f", age {self.age}" if self.age else ""
        occupation = f", occupation: {self.occupation}" if self.occupation else ""
        return f"User: {gender}{age}{occupation}."


class RecommenderDataset:
    """People, movies and the three splits, with ids from 0. Data sets are made by filling one of these."""

    def __init__(
        self,
        people: list[Person],
        movies: list[Movie],
        splits: dict[str, Interactions],
        user_ids: np.ndarray | None = None,
        item_ids: np.ndarray | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.people = people
        self.movies = movies
        self._splits = splits
        self.notes = tuple(notes)  # sentences about what was done to the data
        # The ids that people and movies have in the files, numbers or names, by ids from 0.
        self.user_ids = np.arange(len(people)) if user_ids is None else np.asarray(user_ids)
        self.item_ids = np.arange(len(movies)) if item_ids is None else np.asarray(item_ids)

    def get_user_num(self) -> int:
        return len(self.people)

    def get_item_num(self) -> int:
        return len(self.movies)

    def get_split_data(self, split: str) -> Interactions:
        """The pairs of ``"train"``, ``"validation"`` or ``"test"``."""
        if split not in self._splits:
            raise ConfigError(f"there is no split {split!r}; use one of {', '.join(SPLITS)}")
        return self._splits[split]

    def user_texts(self) -> list[str]:
        return [person.text() for person in self.people]

    def item_texts(self) -> list[str]:
        return [movie.text() for movie in self.movies]
