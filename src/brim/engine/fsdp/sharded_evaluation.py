"""The mean loss of a sharded model: every rank computes as many parts of every batch, and at the same time."""

from torch import nn

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.order import rank_bounds
from brim.engine.components.loss import Loss
from brim.engine.distributed.collective_recovery import CollectiveRecovery
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import Evaluator, MeanLoss, evaluating
from brim.engine.fsdp.shards import ShardedModel
from brim.engine.oom.halved_size import halved_size
from brim.errors import CannotFit


class ShardedLoss:
    """The mean loss in micro-batches of a size of its own: running out of memory halves it on all ranks, and the
    evaluation starts anew.
    """

    monitor = MeanLoss.monitor
    higher_is_better = MeanLoss.higher_is_better

    def __init__(self, whole: MeanLoss, shards: ShardedModel, recovery: CollectiveRecovery) -> None:
        self.whole = whole  # the same of a model that is not sharded
        self.shards = shards
        self.recovery = recovery
        self._size: int | None = None
        self._largest = 0

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        with self.whole.metrics.evaluation(self.whole.precision.device):
            found = self.recovery.run(self._results, "evaluation", self._next_size, self._take_smaller)
        self.shards.reshard()
        return found

    def model_now(self) -> nn.Module:
        """The module, which may have been built again meanwhile."""
        return self.shards.module

    def _results(self) -> dict[str, float]:
        self.whole.metrics.start(self.whole.precision.device)  # anew, where memory ran out
        return self.whole.results(self._losses())

    def _losses(self) -> list[Loss]:
        found: list[Loss] = []
        for batch in self.whole.prefetcher(self.whole.whole_batches()):
            length = batch_length(batch)
            found += self._of_batch(batch, length) if length else []
        return found

    def _of_batch(self, batch: Batch, length: int) -> list[Loss]:
        """Of this rank's share. Where it has fewer samples than micro-batches, it computes one that does not count."""
        ranks = self.whole.ranks
        start, stop = rank_bounds(0, length, ranks.rank, ranks.world)
        most = -(-length // ranks.world)
        number = 1 if self._size is None else -(-most // self._size)
        found: list[Loss] = []
        for place in range(number):
            first, last = rank_bounds(start, stop, place, number)
            self._largest = max(self._largest, last - first)
            part = slice_batch(batch, first, last) if last > first else slice_batch(batch, 0, 1)
            with self.whole.precision.autocast():
                loss = self.whole.part(self.shards.module, part, counts=last > first)
            if last > first:
                found.append(loss)
        return found

    def _next_size(self) -> int:
        return halved_size(self._largest)

    def _take_smaller(self, size: int) -> None:
        verdict, sliceable = self.shards.verdict, self.whole.slices.sliceable
        if sliceable is False or not (sliceable or verdict is None or verdict.gives_count):
            raise CannotFit("a rank has no memory to evaluate its part of the batch, and its loss must not be split")
        self._size, self._largest = size, 0


class OnWholeModel:
    """Data that evaluates a model by itself gets the user's own, with the weights of now, on every rank."""

    def __init__(self, data: Evaluator, shards: ShardedModel, ranks: Ranks) -> None:
        self.data = data
        self.shards = shards
        self.ranks = ranks
        self.monitor = data.monitor
        self.higher_is_better = data.higher_is_better
        if isinstance(getattr(data, "ranks", None), Ranks):  # it can take its share
            data.ranks = ranks  # type: ignore[attr-defined]

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        self.shards.reshard()
        self.shards.give_back()
        bare = self.shards.bare.to(self.ranks.device)
        with evaluating(bare):
            return self.data.evaluate(bare)
