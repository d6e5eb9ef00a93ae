"""Who interacted with what: pairs of users and items, and their split into training, validation and test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brim.errors import ConfigError, DataError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Interactions:
    """Pairs (user, item) with ids from 0, in no particular order."""

    users: Tensor
    items: Tensor
    n_users: int
    n_items: int

    def __post_init__(self) -> None:
        if len(self.users) != len(self.items):
            raise DataError(
                f"there are {len(self.users)} users and {len(self.items)} items; pairs need as many of each"
            )

        for name, ids, limit in (("user", self.users, self.n_users), ("item", self.items, self.n_items)):
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < limit:
                raise DataError(f"{name} ids must be 0 to {limit - 1}, and are {int(ids.min())} to {int(ids.max())}")

    def __len__(self) -> int:
        return len(self.users)

    def to(self, device: torch.device) -> "Interactions":
        return replace(self, users=self.users.to(device), items=self.items.to(device))


def check_split_ratio(ratio: Sequence[float]) -> None:
    if len(ratio) != 3 or not all(map(math.isfinite, ratio)) or min(ratio) < 0 or not ratio[0] > 0:
        raise ConfigError(
            f"split_ratio={list(ratio)} must be three shares for train, validation and test, as [0.8, 0.1, 0.1]"
        )


def without_repeats(pairs: Interactions) -> Interactions:
    """Each pair once, where it stands first; the same object where none is repeated."""
    keys = pairs.users * pairs.n_items + pairs.items
    unique, inverse = torch.unique(keys, return_inverse=True)
    if len(unique) == len(keys):
        return pairs
    places = torch.arange(len(keys), device=keys.device)
    first = torch.full_like(unique, len(keys)).scatter_reduce_(0, inverse, places, "amin")
    return _take(pairs, first.sort().values)


def split_with_notes(
    parts: Mapping[str, Interactions], ratio: Sequence[float], seed: int
) -> tuple[dict[str, Interactions], tuple[str, ...]]:
    """The splits that ``parts`` are, or else those of its one part ``"all"``, with sentences about repeated pairs.

    A pair that stands there twice could be trained on and tested as well, where what was trained on is not ranked.
    """
    if "all" in parts:
        once = without_repeats(parts["all"])
        repeats = len(parts["all"]) - len(once)
        said = f"{repeats:,} of {len(parts['all']):,} pairs are there already, and count once"
        return split_per_user(once, ratio, seed), (said,) if repeats else ()
    shared = _count_shared([parts[split] for split in SPLITS])
    said = (
        f"{shared:,} pairs are in more than one of the files {', '.join(SPLITS)}: what an earlier one has is left out "
        "of a ranking, so nothing can find them there"
    )
    twice = len(parts["train"]) - len(without_repeats(parts["train"]))
    repeated = (
        f"{twice:,} of {len(parts['train']):,} pairs of train are there already; gpt2 and bpr train on them again"
    )
    return dict(parts), ((said,) if shared else ()) + ((repeated,) if twice else ()) + _told_unknown(parts)


def _told_unknown(parts: Mapping[str, Interactions]) -> tuple[str, ...]:
    """Users that nothing is known of, as a split by time has: ids rank for them as for anybody, or by chance."""
    known, told = parts["train"].users, []
    for split in ("validation", "test"):
        users = torch.unique(parts[split].users)
        unknown = int((~torch.isin(users, known)).sum())
        if unknown:
            told.append(
                f"{unknown:,} of {len(users):,} users of {split} have no pair in train, which tells nothing of them"
            )
    return tuple(told)


def _count_shared(parts: Sequence[Interactions]) -> int:
    keys = torch.cat([torch.unique(part.users * part.n_items + part.items) for part in parts])
    return int((torch.unique(keys, return_counts=True)[1] > 1).sum())


def split_per_user(pairs: Interactions, ratio: Sequence[float], seed: int = 0) -> dict[str, Interactions]:
    """Split every user's pairs at random by ``ratio`` (train, validation, test); each user trains on at least one."""
    check_split_ratio(ratio)
    shares = [share / sum(ratio) for share in ratio]
    shuffled = torch.randperm(len(pairs), generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    order = shuffled[torch.sort(pairs.users[shuffled], stable=True).indices]  # by user, at random within a user
    users = pairs.users[order]
    counts = torch.bincount(users, minlength=pairs.n_users)
    starts = counts.cumsum(0) - counts
    rank = torch.arange(len(order), device="cpu") - starts[users]
    train_end = (counts * shares[0]).round().clamp(min=1)[users]
    validation_end = (counts * (shares[0] + shares[1])).round()[users]
    part = (rank >= train_end).long() + (rank >= torch.maximum(train_end, validation_end)).long()
    return {name: _take(pairs, order[part == index]) for index, name in enumerate(SPLITS)}


def _take(pairs: Interactions, index: Tensor) -> Interactions:
    return replace(pairs, users=pairs.users[index], items=pairs.items[index])
