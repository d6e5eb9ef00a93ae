"""A MovieLens-shaped data set that brim makes itself, so that the first run needs no download.

Movies have genres, a year, a title whose words go with the genres, and a popularity; people have an age, a gender, an
occupation and a taste for genres, part of it their own and part that of people like them. Who watched what follows from
taste, era, popularity and chance. There are few pairs for each movie, so that what its text says is worth knowing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from brim.workloads.recommender.dataset import Movie, Person, RecommenderDataset
from brim.workloads.recommender.interactions import Interactions, split_per_user

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
}
GENRES = tuple(GENRE_WORDS)
OCCUPATIONS = ("student", "engineer", "teacher", "artist", "doctor", "clerk", "farmer", "retired")
AGES = ("18-24", "25-34", "35-44", "45-49", "50-55", "56 or older")
YEARS = (1930, 2000)


class EmbeddedDataset(RecommenderDataset):
    """A generated data set with the interface of the MovieLens ones. The same seed gives the same data.

    >>> dataset = EmbeddedDataset(n_users=50, n_items=40)
    >>> train = dataset.get_split_data("train")
    >>> dataset.get_user_num(), dataset.get_item_num(), len(train) > 400
    (50, 40, True)
    """

    def __init__(
        self, n_users: int = 1500, n_items: int = 2000, split_ratio: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
    ) -> None:
        generator = torch.Generator("cpu").manual_seed(seed)
        genres = _draw_genres(n_items, generator)
        years = torch.randint(*YEARS, (n_items,), generator=generator)
        movies = [_movie(genres[item], int(years[item]), generator) for item in range(n_items)]
        people = [_person(generator) for _ in range(n_users)]
        watched = _draw_watched(_draw_taste(people, generator), genres, years, generator)
        users, items = watched.nonzero(as_tuple=True)
        self.interactions = Interactions(users, items, n_users, n_items)
        super().__init__(people, movies, split_per_user(self.interactions, split_ratio, seed))


def _draw_genres(n_items: int, generator: torch.Generator) -> Tensor:
    """One or two genres a movie, as a 0/1 matrix."""
    chosen = torch.multinomial(torch.ones(n_items, len(GENRES)), 2, generator=generator)
    has_second = torch.randint(2, (n_items, 1), generator=generator).float()
    return torch.zeros(n_items, len(GENRES)).scatter_(1, chosen, torch.cat([torch.ones(n_items, 1), has_second], 1))


def _draw_taste(people: list[Person], generator: torch.Generator) -> Tensor:
    """How much each person likes each genre: half their own, half that of their gender, age and occupation."""
    shared = torch.zeros(len(people), len(GENRES))
    for attribute in ("gender", "age", "occupation"):
        values = sorted({getattr(person, attribute) for person in people})
        of_value = dict(zip(values, torch.randn(len(values), len(GENRES), generator=generator), strict=True))
        shared += torch.stack([of_value[getattr(person, attribute)] for person in people])
    own = torch.randn(len(people), len(GENRES), generator=generator)
    return (own + shared / 3**0.5) / 2**0.5


def _draw_watched(taste: Tensor, genres: Tensor, years: Tensor, generator: torch.Generator) -> Tensor:
    """Who watched what, as a 0/1 matrix: the best n of taste, era, popularity and chance for every person."""
    n_users, n_items = len(taste), len(genres)
    liked = taste @ (genres / genres.sum(1, keepdim=True).sqrt()).T
    era = torch.randint(*YEARS, (n_users, 1), generator=generator)
    distance = (years.float() - era).abs() / 20
    popularity = -torch.log1p(torch.randperm(n_items, generator=generator).float())
    chance = -torch.log(-torch.log(torch.rand(n_users, n_items, generator=generator).clamp(1e-9, 1 - 1e-7)))  # Gumbel
    appeal = 3.0 * liked - 0.3 * distance + 0.3 * popularity + chance
    most = max(1, n_items // 3)
    count = (10 + torch.empty(n_users).exponential_(1 / 10, generator=generator)).clamp(max=most).long()
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
