"""Items that nobody rated yet: held out of training, ranked among themselves, and what a genre alone says of them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from brim.errors import ConfigError
from brim.workloads.recommender.comparison.judge import only_items
from brim.workloads.recommender.dataset import Movie
from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.loaders import scorer


def hold_out_items(
    splits: Sequence[Interactions], share: float = 0.1, seed: int = 0
) -> tuple[Tensor, list[Interactions]]:
    """``share`` of the items, drawn at random, and the splits without them."""
    if not 0 < share < 1:
        raise ConfigError(f"share={share} of the items must be above 0 and below 1")
    n_items = splits[0].n_items
    order = torch.randperm(n_items, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    cold = order[: max(1, round(share * n_items))].sort().values
    warm = order[max(1, round(share * n_items)) :]
    return cold, [only_items(split, warm) for split in splits]


class AmongItems(nn.Module):
    """A model that ranks some of the items only: the others come last."""

    others: Tensor

    def __init__(self, model: nn.Module, items: Tensor, n_items: int) -> None:
        super().__init__()
        self.model = model
        others = torch.ones(n_items, dtype=torch.bool)
        others[items] = False
        self.register_buffer("others", others)

    def full_scores(self, users: Tensor) -> Tensor:
        return scorer(self.model)(users).masked_fill(self.others, -torch.inf)


class GenrePopularity(nn.Module):
    """The same ranking for everybody: how often the training items of an item's genres occur, on average."""

    scores: Tensor

    def __init__(self, train_data: Interactions, movies: Sequence[Movie]) -> None:
        super().__init__()
        self.register_buffer("scores", _mean_of_genres(_occurrences(train_data)[None], train_data, movies)[0])

    def full_scores(self, users: Tensor) -> Tensor:
        return self.scores.repeat(len(users), 1)


class GenreTaste(nn.Module):
    """A ranking for each user: how many training items of an item's genres they watched, of those that there are."""

    scores: Tensor

    def __init__(self, train_data: Interactions, movies: Sequence[Movie]) -> None:
        super().__init__()
        watched = torch.zeros(train_data.n_users, train_data.n_items)
        watched[train_data.users, train_data.items] = 1.0
        self.register_buffer("scores", _mean_of_genres(watched, train_data, movies))

    def full_scores(self, users: Tensor) -> Tensor:
        return self.scores[users]


def _occurrences(train_data: Interactions) -> Tensor:
    return torch.bincount(train_data.items, minlength=train_data.n_items).float()


def _mean_of_genres(counts: Tensor, train_data: Interactions, movies: Sequence[Movie]) -> Tensor:
    """Row by row, for each item, the mean over its genres of the mean count of the genre's training items."""
    genres = _genres(movies)
    in_training = (_occurrences(train_data) > 0).float()
    of_genre = counts @ genres / (in_training @ genres).clamp(min=1)
    return of_genre @ (genres / genres.sum(1, keepdim=True).clamp(min=1)).T


def _genres(movies: Sequence[Movie]) -> Tensor:
    """A row for each movie and a column for each genre."""
    names = sorted({genre for movie in movies for genre in movie.genres})
    genres = torch.zeros(len(movies), len(names))
    for row, movie in enumerate(movies):
        genres[row, [names.index(genre) for genre in movie.genres]] = 1.0
    return genres
