"""Ranking metrics over batches of score matrices."""

from collections.abc import Iterator

import torch
from torch import Tensor

from brim.engine.distributed.ranks import Ranks
from brim.errors import CannotFit


def best_items(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` best items of each row, and their scores. Of equal scores the item with the lower id comes first.

    ``torch.topk`` leaves open which of them it takes, so that popularity, say, would rank otherwise on another device.

    >>> best_items(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), 2)[0]
    tensor([[1, 0]])
    """
    values, items = scores.topk(min(k + 1, scores.shape[1]))  # one more: the last place may be tied as well
    tied = (values[:, 1:] == values[:, :-1]).any(1)
    values, items = values[:, :k], items[:, :k].clone()
    if tied.any():
        items[tied] = _by_score_and_id(scores[tied]).topk(items.shape[1]).indices
    return items, values


def _by_score_and_id(scores: Tensor) -> Tensor:
    """Whole numbers in the order of the scores, and of the ids where these are equal."""
    bits = (scores.float() + 0.0).view(torch.int32).long()  # of floats, in their order; plus 0: there is one zero
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # the more negative, the more the bits say
    ids = torch.arange(scores.shape[1], device=scores.device)
    return ordered * scores.shape[1] - ids


class UserMetrics:
    """Recall, NDCG, MRR, hit rate and precision at each k of each user, in the order in which they are added.

    Args:
        k: lengths of a ranking.
        n_items: how many items there are to rank.
        device: where scores are.
    """

    def __init__(self, k: tuple[int, ...], n_items: int, device: torch.device) -> None:
        self._sums = RankingSums(k, n_items, device)
        self._values: list[dict[str, Tensor]] = []

    def add(self, scores: Tensor, relevant: Tensor, count: Tensor | None = None) -> None:
        self._values.append(dict(self._sums.values(scores, relevant, count)))

    def each(self) -> dict[str, Tensor]:
        """A vector over users for each metric, on the host."""
        return {name: torch.cat([values[name] for values in self._values]).cpu() for name in self._sums.names()}


class RankingSums:
    """Adds up recall, NDCG, MRR, hit rate and precision at each k over users, on the device.

    Precision divides by k, recall by the number of relevant items, NDCG by the best possible order of min(k, relevant)
    items; MRR counts the first relevant item within k. These are the definitions RecBole uses. Of items with equal
    scores the one with the lower id is ranked first, and one whose score is minus infinity is not found.
    """

    def __init__(self, k: tuple[int, ...], n_items: int, device: torch.device) -> None:
        self.k = k
        self.deepest = min(max(k), n_items)
        ranks = torch.arange(1, self.deepest + 1, device=device)
        self.reciprocal = 1 / ranks.float()
        self.discount = 1 / torch.log2(ranks + 1.0)
        self.ideal = torch.cat([torch.zeros(1, device=device), self.discount.cumsum(0)])
        self.users = 0
        self.sums = {name: torch.zeros((), device=device, dtype=torch.float64) for name in self.names()}

    def names(self) -> list[str]:
        return [f"{metric}@{k}" for metric in ("recall", "ndcg", "mrr", "hit", "precision") for k in self.k]

    def add(self, scores: Tensor, relevant: Tensor, count: Tensor | None = None) -> None:
        """``scores`` and the 0/1 matrix ``relevant`` have a row for each user; ``count`` is how many are relevant."""
        for name, value in self.values(scores, relevant, count):
            self.sums[name] += value.sum()
        self.users += len(scores)

    def values(self, scores: Tensor, relevant: Tensor, count: Tensor | None = None) -> Iterator[tuple[str, Tensor]]:
        """The same metrics for each of the users."""
        count = relevant.sum(1) if count is None else count
        top, best = best_items(scores, self.deepest)
        hits = (relevant.gather(1, top).bool() & (best > -torch.inf)).float()  # what is left out is found by nobody
        for k in self.k:
            yield from self._values_at(k, hits[:, :k], count)

    def _values_at(self, k: int, hits: Tensor, count: Tensor) -> Iterator[tuple[str, Tensor]]:
        depth = hits.shape[1]
        found = hits.sum(1)
        yield f"recall@{k}", found / count
        yield f"ndcg@{k}", (hits @ self.discount[:depth]) / self.ideal[count.clamp(max=depth)]
        yield f"mrr@{k}", (hits * self.reciprocal[:depth]).amax(1)
        yield f"hit@{k}", (found > 0).float()
        yield f"precision@{k}", found / k

    def add_up(self, ranks: Ranks) -> None:
        """The sums over the users of all ranks; raises where one of them has none to add."""
        if ranks.any_rank(False):
            raise CannotFit("another rank has no memory to rank its share of the users; its own log says more")
        device = self.discount.device
        users = torch.tensor(float(self.users), dtype=torch.float64, device=device)
        *sums, users = ranks.all_reduce(torch.stack([*self.sums.values(), users]))
        self.sums, self.users = dict(zip(self.sums, sums, strict=True)), int(users)

    def means(self) -> dict[str, float]:
        """The metrics, in one copy from the device."""
        stacked = torch.stack(list(self.sums.values())) / self.users
        return dict(zip(self.sums, stacked.tolist(), strict=True))
