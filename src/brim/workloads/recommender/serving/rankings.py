"""The best items for a person, and the best people for an item: those of training, and new ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brim.engine.evaluation.evaluation import evaluating
from brim.errors import ConfigError
from brim.sizes import check_whole
from brim.workloads.recommender.loaders import Factorised, scorer
from brim.workloads.recommender.ranking import best_items
from brim.workloads.recommender.serving.fold_in import fold_in
from brim.workloads.recommender.serving.item_lists import ItemLists


@dataclass(frozen=True)
class Ranking:
    """Ids of items (or of people), best first, with their scores."""

    ids: list[int]
    scores: list[float]


def rank_items(
    model: nn.Module,
    user: int | None = None,
    k: int = 10,
    known: Sequence[int] | Tensor | None = None,
    watched: Sequence[int] | None = None,
    text: str | None = None,
) -> Ranking:
    """The ``k`` best items for one person.

    Args:
        model: ranks all items: with ``user_vectors`` and ``item_vectors``, or with ``full_scores``.
        user: one of training, by id from 0.
        k: how many; fewer where there are not so many.
        known: ids of items to leave out.
        watched: ids of items that a new person has watched, instead of ``user``; they are left out.
        text: what is known of a new person, for a model that reads texts; may come with ``watched``.
    """
    if (user is None) == (watched is None and text is None):
        raise ConfigError("recommend takes a user of training, or somebody new: watched=[item ids] or text=...")
    check_whole("k", k)
    with evaluating(model), torch.no_grad():
        home = _home(model)
        if user is not None:
            users = _ids("user", [user], _size(model, "n_users"))
            scores = scorer(model)(torch.tensor(users, device=home))[0]
        else:
            items = factorised(model).item_vectors()
            scores = (items @ _new_person(model, items, _ids("item", watched, len(items)), text)).float()
        left_out = [*_ids("item", watched, len(scores)), *_ids("item", known, len(scores))]
        scores[torch.tensor(left_out, dtype=torch.long, device=home)] = -torch.inf
        return _best(scores, k)


def recommend(
    self: nn.Module,
    user: int | None = None,
    k: int = 10,
    known: Sequence[int] | Tensor | None = None,
    *,
    watched: Sequence[int] | None = None,
) -> list[int]:
    """The ``k`` best items for one person, ``known`` ones left out; a method of models that read no texts of people.

    Args:
        user: one of training.
        k: how many.
        known: ids of items to leave out.
        watched: instead of ``user``, what somebody new has watched; left out too.
    """
    return rank_items(self, user, k, known, watched).ids


def rank_users(model: nn.Module, text: str, k: int = 10) -> Ranking:
    """The ``k`` people of training who would like a new item best, of which there is only a text."""
    check_whole("k", k)
    with evaluating(model), torch.no_grad():
        users = torch.arange(_size(model, "n_users"), device=_home(model))
        return _best((factorised(model).user_vectors(users) @ new_item(model, text)).float(), k)


def rank_alike(model: nn.Module, text: str, k: int = 10) -> Ranking:
    """The ``k`` items of training that are most like a new one of which there is only a text, by cosine."""
    check_whole("k", k)
    with evaluating(model), torch.no_grad():
        items = nn.functional.normalize(factorised(model).item_vectors(), dim=1)
        return _best((items @ nn.functional.normalize(new_item(model, text), dim=0)).float(), k)


def place_of(model: nn.Module, user: int, text: str, known: Sequence[int] | Tensor | None = None) -> tuple[int, int]:
    """At which place, from 1, a new item would be among those that this person does not know, and of how many."""
    with evaluating(model), torch.no_grad():
        users = _ids("user", [user], _size(model, "n_users"))
        vector = factorised(model).user_vectors(torch.tensor(users, device=_home(model)))[0]
        scores = factorised(model).item_vectors() @ vector
        unknown = torch.ones_like(scores, dtype=torch.bool)
        unknown[torch.tensor(_ids("item", known, len(scores)), dtype=torch.long, device=scores.device)] = False
        better = int((scores[unknown] > new_item(model, text) @ vector).sum())
        return better + 1, int(unknown.sum()) + 1


def rankings_of_all(
    model: nn.Module, users: Tensor, k: int, left_out: ItemLists | None, at_once: int = 256
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Users, the ids of their best items and the scores, some users at a time.

    Args:
        model: as for :func:`rank_items`.
        users: ids from 0.
        k: items for each of them.
        left_out: what each user knows.
        at_once: users.
    """
    check_whole("k", k)
    with evaluating(model), torch.no_grad():
        scores_of, home = scorer(model), _home(model)
        for some in torch.split(users, at_once):
            scores = scores_of(some.to(home)).cpu()
            for row, user in enumerate(some.tolist()):
                if left_out is not None:
                    scores[row, left_out[user]] = -torch.inf
            yield some, *best_items(scores, k)


def new_item(model: nn.Module, text: str) -> Tensor:
    """The vector of an item of which there is only a text."""
    reads: Any = model
    if not hasattr(model, "new_item_vectors"):
        raise ConfigError(
            f"{type(model).__name__} reads no texts, so it knows nothing of a new item; train model.name=gpt2"
        )
    vector: Tensor = reads.new_item_vectors([text])[0]
    return vector


def factorised(model: nn.Module) -> Factorised:
    """The model, if its scores are products of vectors."""
    if not isinstance(model, Factorised):
        raise ConfigError(
            f"{type(model).__name__} has no vectors of users and items, so it can rank for users of training alone"
        )
    return model


def _new_person(model: nn.Module, items: Tensor, watched: Sequence[int], text: str | None) -> Tensor:
    if hasattr(model, "watcher_vectors"):  # it knows everybody by what they watched
        return _by_history(model, watched, text, len(items))
    people = factorised(model).user_vectors(torch.arange(_size(model, "n_users"), device=items.device))
    mean = people.mean(0)
    if text is not None:
        reads: Any = model
        if not hasattr(model, "new_user_vectors"):
            raise ConfigError(f"{type(model).__name__} reads no texts; say what the person has watched instead")
        mean = reads.new_user_vectors([text])[0]
    if not watched:
        return mean
    variance = float(people.var(0, unbiased=False).mean())
    chosen = torch.tensor(sorted(set(watched)), device=items.device)
    return fold_in(items, chosen, mean, 1 / max(variance, 1e-12))


def _by_history(model: Any, watched: Sequence[int], text: str | None, n_items: int) -> Tensor:
    if text is not None:
        raise ConfigError(f"{type(model).__name__} reads texts of items alone; say what the person has watched instead")
    row = torch.zeros(1, n_items, dtype=torch.bool, device=_home(model))
    row[0, list(watched)] = True
    vector: Tensor = model.watcher_vectors(row)[0]
    return vector


def _best(scores: Tensor, k: int) -> Ranking:
    items, best = best_items(scores[None], min(k, int((scores > -torch.inf).sum())))
    return Ranking(items[0].tolist(), best[0].tolist())


def _home(model: nn.Module) -> torch.device:
    home = next(model.parameters(), None)
    return torch.device("cpu") if home is None else home.device


def _size(model: nn.Module, name: str) -> int:
    arguments: Any = getattr(model, "arguments", None) or {}
    if name not in arguments:
        raise ConfigError(f"{type(model).__name__} does not say in its arguments how many there are: {name}")
    return int(arguments[name])


def _ids(kind: str, given: Sequence[int] | Tensor | None, count: int) -> list[int]:
    """As numbers of Python's, whoever's they were; refused where one of them is no id."""
    ids = [] if given is None else [one.item() if hasattr(one, "item") else one for one in given]
    odd = next((one for one in ids if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < count), None)
    if odd is not None:
        raise ConfigError(f"there is no {kind} {odd!r}; they are 0 to {count - 1}")
    return ids
