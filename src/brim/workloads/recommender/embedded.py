"""A MovieLens-shaped data set that brim makes itself, so that the first run needs no download.

Movies have genres, a year, a title whose words go with the genres, and a popularity; people have an age, a gender, an
occupation and a taste. Who watched what follows from taste and popularity, so a model can learn it, and the taste is
one of genres and years, so the text of a movie tells something about who likes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brim.errors import ConfigError
from brim.workloads.recommender.interactions import SPLITS, Interactions, split_per_user

GENRE_WORDS = {
    "Action": ("Strike", "Force", "Run", "Justice"),
    "Adventure": ("Island", "Quest", "River", "Treasure"),
    "Animation": ("Little", "Tale", "Toy", "Rabbit"),
    "Comedy": ("Wedding", "Uncle", "Crazy", "Holiday"),
    "Crime": ("Heist", "Alibi", "Docks", "Informer"),
    "Documentary": ("Archive", "Portrait", "Voices", "Harvest"),
    "Drama": ("Winter", "Letters", "Mother", "Silence"),
    "Fantasy": ("Dragon", "Crown", "Witch", "Mirror"),
    "Horror": ("Cellar", "Scream", "Grave", "Blood"),
    "Musical": ("Song", "Dance", "Stage", "Melody"),
    "Mystery": ("Secret", "Key", "Vanishing", "Hour"),
    "Romance": ("Love", "Paris", "Promise", "Kiss"),
    "Sci-Fi": ("Star", "Robot", "Orbit", "Signal"),
    "Thriller": ("Edge", "Hostage", "Night", "Pursuit"),
    "War": ("Bridge", "Battalion", "Trench", "Front"),
    "Western": ("Canyon", "Sheriff", "Dust", "Rider"),
}
GENRES = tuple(GENRE_WORDS)
OCCUPATIONS = ("student", "engineer", "teacher", "artist", "doctor", "clerk", "farmer", "retired")
AGES = (18, 25, 35, 45, 50, 56)
YEARS = (1930, 2000)


@dataclass(frozen=True)
class Movie:
    title: str
    genres: tuple[str, ...]


@dataclass(frozen=True)
class Person:
    gender: str
    age: int
    occupation: str


class EmbeddedDataset:
    """A generated data set with the interface of the MovieLens ones. The same seed gives the same data.

    >>> dataset = EmbeddedDataset(n_users=50, n_items=40)
    >>> train = dataset.get_split_data("train")
    >>> dataset.get_user_num(), dataset.get_item_num(), len(train) > 400
    (50, 40, True)
    """

    def __init__(
        self, n_users: int = 2000, n_items: int = 1200, split_ratio: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
    ) -> None:
        generator = torch.Generator("cpu").manual_seed(seed)
        genres = _draw_genres(n_items, generator)
        years = torch.randint(*YEARS, (n_items,), generator=generator)
        self.movies = [_movie(genres[item], int(years[item]), generator) for item in range(n_items)]
        self.people = [_person(generator) for _ in range(n_users)]
        watched = _draw_watched(n_users, genres, years, generator)
        users, items = watched.nonzero(as_tuple=True)
        self.interactions = Interactions(users, items, n_users, n_items)
        self._splits = split_per_user(self.interactions, split_ratio, seed)

    def get_user_num(self) -> int:
        return self.interactions.n_users

    def get_item_num(self) -> int:
        return self.interactions.n_items

    def get_split_data(self, split: str) -> Interactions:
        """The pairs of ``"train"``, ``"validation"`` or ``"test"``."""
        if split not in self._splits:
            raise ConfigError(f"there is no split {split!r}; use one of {', '.join(SPLITS)}")
        return self._splits[split]


def _draw_genres(n_items: int, generator: torch.Generator) -> Tensor:
    """One to three genres a movie, as a 0/1 matrix; early genres are commoner, as drama and comedy are."""
    weight = 1 / (1 + torch.randperm(len(GENRES), generator=generator).float()).sqrt()
    chosen = torch.multinomial(weight.expand(n_items, -1), 3, generator=generator)
    count = torch.randint(1, 4, (n_items, 1), generator=generator)
    genres = torch.zeros(n_items, len(GENRES))
    return genres.scatter_(1, chosen, (torch.arange(3) < count).float())


def _draw_watched(n_users: int, genres: Tensor, years: Tensor, generator: torch.Generator) -> Tensor:
    """Who watched what, as a 0/1 matrix: the best n of taste, popularity and chance for every person."""
    n_items = len(genres)
    taste = torch.randn(n_users, genres.shape[1], generator=generator)
    liked = taste @ (genres / genres.sum(1, keepdim=True).sqrt()).T
    era = torch.randint(*YEARS, (n_users, 1), generator=generator)
    distance = (years.float() - era).abs() / 20
    popularity = -0.5 * torch.log1p(torch.randperm(n_items, generator=generator).float())
    chance = -torch.log(-torch.log(torch.rand(n_users, n_items, generator=generator).clamp(1e-9, 1 - 1e-7)))  # Gumbel
    appeal = 1.8 * liked - 0.7 * distance + popularity + chance
    most = max(1, n_items // 3)
    count = (20 + torch.empty(n_users).exponential_(1 / 30, generator=generator)).clamp(max=most).long()
    ranked = appeal.topk(most, dim=1).indices
    watched = torch.zeros(n_users, n_items, dtype=torch.bool)
    return watched.scatter_(1, ranked, torch.arange(most) < count[:, None])


def _movie(genres: Tensor, year: int, generator: torch.Generator) -> Movie:
    names = tuple(GENRES[index] for index in genres.nonzero().flatten().tolist())
    words = [_pick(GENRE_WORDS[_pick(names, generator)], generator) for _ in range(2)]
    return Movie(f"The {words[0]} of {words[1]} ({year})", names)


def _person(generator: torch.Generator) -> Person:
    return Person(_pick(("F", "M"), generator), _pick(AGES, generator), _pick(OCCUPATIONS, generator))


def _pick(choices, generator: torch.Generator):  # type: ignore[no-untyped-def]
    return choices[int(torch.randint(len(choices), (), generator=generator))]
