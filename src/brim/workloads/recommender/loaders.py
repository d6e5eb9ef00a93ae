"""Loaders of the recommender: training triples, and full-ranking evaluation."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from brim.data import NegativeSampler
from brim.data.randomness.order import EpochOrders, batch_bounds, batch_count, rank_bounds, stream_key
from brim.engine.distributed.ranks import Ranks
from brim.errors import ConfigError, DataError
from brim.hardware import choose_device, inventory
from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.ranking import RankingSums, UserMetrics

BATCHES_PER_BLOCK = 256  # gathered at once: long enough to cost little per batch, short enough to cost little memory
MOST_USERS_ON_CPU = 256


class Triples(NamedTuple):
    """A batch for losses over pairs: each user with an item they know and one (or a row of some) they do not."""

    users: Tensor
    positives: Tensor
    negatives: Tensor


class TrainDataLoader:
    """Batches of (user, positive, negative), made where the model computes.

    Order and negatives are functions of seed, epoch and position, so they are the same on every device, and any
    position can be started from.

    Args:
        train_data: who interacted with what.
        batch_size: pairs in a batch.
        shuffle: another order of pairs in each epoch.
        device: where batches are made.
        drop_last: leave out the last, smaller batch of an epoch.
        seed: of iterating over it; a trainer brings its own.
        negatives: how many are drawn for each pair, in a row; None for one without a row.
    """

    hands_out_blocks = True  # batches are rows of blocks, which nothing writes to once they are handed out

    def __init__(
        self,
        train_data: Interactions,
        batch_size: int = 2048,
        shuffle: bool = True,
        device: str | torch.device = "cuda",
        drop_last: bool = False,
        seed: int = 0,
        negatives: int | None = None,
    ) -> None:
        _check_batch_size(batch_size)
        if negatives is not None and negatives < 1:
            raise ConfigError(f"negatives={negatives} must be at least 1")
        self.negatives = negatives
        if len(train_data) == 0:
            raise DataError("the training data has no interactions")
        self.batch_size, self.shuffle, self.drop_last, self.seed = batch_size, shuffle, drop_last, seed
        self.device = choose_device(device, inventory()).device
        self.pairs = train_data.to(self.device)
        self.sampler = NegativeSampler(self.pairs.users, self.pairs.items, train_data.n_users, train_data.n_items)
        self._epoch = 0
        self._orders = EpochOrders()

    @property
    def samples(self) -> int:
        """The number of interactions."""
        return len(self.pairs)

    def __len__(self) -> int:
        return batch_count(len(self.pairs), self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Triples]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self.batches(self.seed, epoch)

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Triples]:
        """The batches of an epoch from position ``start`` on."""
        order = self._orders.order(len(self.pairs), seed, epoch).to(self.device) if self.shuffle else None
        return self._read(order, stream_key(seed, epoch), start, self.drop_last)

    def in_order(self) -> Iterator[Triples]:
        return self._read(None, stream_key(self.seed, 0), 0, drop_last=False)

    def _read(self, order: Tensor | None, key: int, start: int, drop_last: bool) -> Iterator[Triples]:
        size = self.batch_size
        length = len(self.pairs) - len(self.pairs) % size if drop_last else len(self.pairs)
        for first, stop in batch_bounds(length, size * BATCHES_PER_BLOCK, start):
            positions = torch.arange(first, stop, device=self.device)
            index = positions if order is None else order[first:stop]
            users, items = self.pairs.users[index], self.pairs.items[index]
            negatives = self._draw(users, positions, key)
            for a, b in batch_bounds(stop - first, size):
                yield Triples(users[a:b], items[a:b], negatives[a:b])

    def _draw(self, users: Tensor, positions: Tensor, key: int) -> Tensor:
        if self.negatives is None:
            return self.sampler(users, positions, key)
        several = positions[:, None] * self.negatives + torch.arange(self.negatives, device=self.device)
        drawn = self.sampler(users.repeat_interleave(self.negatives), several.flatten(), key)
        return drawn.view(len(users), self.negatives)


@runtime_checkable
class RanksItems(Protocol):
    """A model that scores every item for given users at once."""

    def full_scores(self, users: Tensor) -> Tensor: ...


@runtime_checkable
class Factorised(Protocol):
    """A model whose score is a product of vectors: items are computed once, and every user costs one product."""

    def user_vectors(self, users: Tensor) -> Tensor: ...

    def item_vectors(self) -> Tensor: ...


def scorer(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function from users to a fresh matrix of scores over all items."""
    if isinstance(model, Factorised):
        items = model.item_vectors().T
        return lambda users: (model.user_vectors(users) @ items).float()
    if isinstance(model, RanksItems):
        # A copy: what is masked in it must not be masked in what the model may keep.
        return lambda users: model.full_scores(users).to(torch.float32, copy=True)
    raise ConfigError(
        f"{type(model).__name__} cannot rank all items: it has neither user_vectors(users) and item_vectors(), "
        "nor full_scores(users)"
    )


class EvalDataLoader:
    """Full ranking: every item is scored for every user, items they trained on are left out, and the rest is ranked.

    ``also_mask`` leaves out further known pairs; for a test split that is usually the validation data. Users without
    a pair in ``eval_data`` do not count. A ``k`` beyond the number of items means all of them.
    """

    monitor = "ndcg@10"
    higher_is_better = True

    def __init__(
        self,
        eval_data: Interactions,
        train_data: Interactions,
        batch_size: int = 2048,
        device: str | torch.device = "cuda",
        k: Sequence[int] = (10, 20),
        also_mask: Interactions | None = None,
    ) -> None:
        _check_batch_size(batch_size)
        if not k or min(k) < 1:
            raise ConfigError(f"k={list(k)} must be whole numbers of at least 1")
        if len(eval_data) == 0:
            raise DataError("the evaluation data has no interactions; give its split a larger share (split_ratio)")
        self.batch_size, self.k = batch_size, tuple(sorted(set(k)))
        self.monitor = f"ndcg@{self.k[0]}"
        self.n_items = eval_data.n_items
        self.ranks = Ranks()  # who shares the users; a trainer with several sets it
        self._data = [data for data in (eval_data, train_data, also_mask) if data is not None]
        self._place(choose_device(device, inventory()).device)

    def _place(self, device: torch.device) -> None:
        """Lay out what is relevant and what is known for every evaluated user, on ``device``."""
        self.device = device
        self.users = torch.unique(self._data[0].users).to(device)
        self.relevant, *self.known = [_ItemsOfUsers(data, self.users) for data in self._data]

    def __len__(self) -> int:
        return batch_count(len(self.users), self.batch_size)

    def give_up(self) -> None:
        """Meet the other ranks only to say that this one cannot evaluate its share."""
        self.ranks.any_rank(True)

    def _users_at_once(self) -> int:
        """On the CPU no more than fit into its caches: the metrics are the same, and come twice as fast."""
        return min(self.batch_size, MOST_USERS_ON_CPU) if self.device.type == "cpu" else self.batch_size

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Mean metrics over users; everything stays on the device until the end."""
        self._place_beside(model)
        sums = RankingSums(self.k, self.n_items, self.device)
        self._rank(model, sums, *rank_bounds(0, len(self.users), self.ranks.rank, self.ranks.world))
        if not self.ranks.is_alone:
            sums.add_up(self.ranks)
        return sums.means()

    def evaluate_each(self, model: nn.Module) -> dict[str, Tensor]:
        """The same metrics of every user, in the order of ``users``: what intervals are made of."""
        self._place_beside(model)
        metrics = UserMetrics(self.k, self.n_items, self.device)
        self._rank(model, metrics, 0, len(self.users))
        return metrics.each()

    def _place_beside(self, model: nn.Module) -> None:
        home = next(chain(model.parameters(), model.buffers()), None)
        if home is not None and home.device != self.device:
            self._place(home.device)

    def _rank(self, model: nn.Module, metrics: RankingSums | UserMetrics, begin: int, end: int) -> None:
        with torch.no_grad():
            scores_of = scorer(model)
            for first, stop in batch_bounds(end, self._users_at_once(), begin):
                scores = scores_of(self.users[first:stop])
                for known in self.known:
                    scores[known.pairs(first, stop)] = -torch.inf
                relevant = torch.zeros(scores.shape, dtype=torch.bool, device=self.device)
                relevant[self.relevant.pairs(first, stop)] = True
                metrics.add(scores, relevant, self.relevant.counts[first:stop])


class _ItemsOfUsers:
    """The items of consecutive users as index pairs into a score matrix of these users."""

    def __init__(self, data: Interactions, users: Tensor) -> None:
        row_of_user = torch.full((data.n_users,), -1, device=users.device)
        row_of_user[users] = torch.arange(len(users), device=users.device)
        rows = row_of_user[data.users.to(users.device)]
        evaluated = rows >= 0
        # Sorted by user, and a pair that is there twice counts once.
        pairs = torch.unique(rows[evaluated] * data.n_items + data.items.to(users.device)[evaluated])
        self.rows, self.items = pairs // data.n_items, pairs % data.n_items
        bounds = torch.arange(len(users) + 1, device=users.device)
        starts = torch.searchsorted(self.rows, bounds)
        self.counts = starts.diff()
        self.starts: list[int] = starts.tolist()  # on the host: read at every batch

    def pairs(self, first: int, stop: int) -> tuple[Tensor, Tensor]:
        part = slice(self.starts[first], self.starts[stop])
        return self.rows[part] - first, self.items[part]


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size} must be at least 1")
