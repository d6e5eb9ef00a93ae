"""The model's outputs for data, in its order: whole batches, shared out to the devices or ranks that there are."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch, DevicePrefetcher, Feed, Loader, batch_length, move_data_to_device
from brim.data.batches.batch import cast_floats
from brim.data.feed import as_ordered_feed
from brim.engine.components.loss import LossFunction, predict_batch
from brim.engine.components.precision import Precision
from brim.engine.data_parallel.device_threads import compute_side_by_side
from brim.engine.data_parallel.replicas import Replicas, Replicate, torch_replicate
from brim.engine.distributed.ranks import Ranks
from brim.engine.distributed.same_batches import check_same_data, same_on_all_ranks
from brim.engine.evaluation.evaluation import evaluating
from brim.engine.evaluation.evaluation_slices import EvaluationSlices
from brim.engine.evaluation.joined_outputs import PartOutput, join, to_host
from brim.engine.evaluation.output_choice import OutputChoice, check_output_choice, chosen_output
from brim.engine.numbers.gather_scope import Alone, gathering
from brim.errors import BrimError, DataError

Tell = Callable[[str], Any]


def predict(
    model: nn.Module,
    data: Any,
    loss_fn: LossFunction | None,
    precision: Precision,
    output: OutputChoice = None,
    ranks: Ranks | None = None,
    devices: Sequence[torch.device] = (),
    tell: Tell = lambda sentence: None,
    make_replicas: Replicate = torch_replicate,
) -> Any:
    """The model's outputs for all of ``data``, in the order of the data, in host memory; the same on all ranks.

    A batch is computed whole by one device, so that it is what one device alone would compute, however many there are.
    """
    check_output_choice(output)
    ranks = ranks or Ranks()
    feed = as_ordered_feed(data)
    with evaluating(model):
        homes = list(devices) if len(devices) > 1 else [precision.device]
        models = Replicas(model, homes, make_replicas).models if len(homes) > 1 else [model]
        shares = [
            _Predictor(one, loss_fn, precision if len(homes) == 1 else Precision(precision.name, home), output, tell)
            for one, home in zip(models, homes, strict=True)
        ]
        mine = _of_this_rank(feed, shares, ranks, tell)
    parts = [part for batch in mine for part in batch]
    if not parts:
        raise DataError("there is nothing to predict: the data is empty")
    if output is None:
        _tell_of_rows(parts, tell)
    return join(parts)


def _tell_of_rows(parts: list[PartOutput], tell: Tell) -> None:
    """Outputs that are not one for each sample, as where a single sample was handed over without a batch dimension."""
    for value, samples in ((part.value, part.samples) for part in parts):
        rows = len(value) if isinstance(value, Tensor) and value.dim() else 1
        if isinstance(value, Tensor) and rows != samples:
            tell(
                f"the model returns {rows} rows for {samples} samples, so they are not one for each sample; a single "
                "sample is handed over with a batch dimension: x[None]"
            )
            return


class _Predictor:
    """A model on one device, and how much of a batch goes through it at once."""

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction | None, precision: Precision, output: OutputChoice, tell: Tell
    ) -> None:
        self.model = model
        self.loss_fn = loss_fn
        self.output = output
        self.device, self.floats = precision.device, precision.weights_dtype
        self._slices = EvaluationSlices(precision, roots=(model, loss_fn, output), tell=tell)

    def __call__(self, batch: Batch) -> list[tuple[Any, int]]:
        """Outputs on the device, each with its number of samples."""
        return self._slices(batch, self._predict) if batch_length(batch) else []

    def _predict(self, part: Batch) -> tuple[Any, int]:
        samples = batch_length(part)  # before the call, which may take things out of the batch
        with gathering(Alone()):  # other ranks predict other batches
            return chosen_output(predict_batch(self.model, part, self.loss_fn), part, self.output), samples


def _of_this_rank(feed: Feed, shares: list[_Predictor], ranks: Ranks, tell: Tell) -> list[list[PartOutput]]:
    """The outputs of all batches; of several ranks each computes its own, and all get them in one exchange."""
    if ranks.is_alone:
        return list(_outputs(feed.in_order(), shares))
    failed: Exception | None = None
    own: list[list[PartOutput]] = []
    batches = _own_batches(feed, ranks, tell)
    try:
        own = list(_outputs(batches, shares))
    except Exception as error:  # the others wait for the exchange
        failed = error
    told = None if failed is None else (str(failed).splitlines() or [type(failed).__name__])[0]
    gathered = ranks.all_gather_object((own, told))
    if failed is not None:
        raise failed
    for rank, (_, trouble) in enumerate(gathered):
        if trouble is not None:
            raise BrimError(f"rank {rank} could not predict its batches: {trouble}")
    return [batches[turn] for turn in range(len(gathered[0][0])) for batches, _ in gathered if turn < len(batches)]


def _own_batches(feed: Feed, ranks: Ranks, tell: Tell) -> Iterator[Batch]:
    """Every so many-th batch; a loader of brim's reads no others."""
    if isinstance(feed, Loader) and feed.samples is not None:
        check_same_data(feed, ranks, "the data to predict", tell)
        return feed.in_order(ranks.rank, ranks.world, whole=True)
    batches = same_on_all_ranks(feed.in_order(), ranks, "the data to predict", 1, tell)
    return islice(batches, ranks.rank, None, ranks.world)


def _outputs(batches: Iterator[Batch], shares: list[_Predictor]) -> Iterator[list[PartOutput]]:
    """Batch after batch in host memory. An output is fetched when the next batch is on its way: no device waits."""
    waiting: list[list[tuple[Any, int]]] = []
    for computed in _computed(batches, shares):
        yield from map(_fetched, waiting)
        waiting = computed
    yield from map(_fetched, waiting)


def _computed(batches: Iterator[Batch], shares: list[_Predictor]) -> Iterator[list[list[tuple[Any, int]]]]:
    """Outputs on the devices, for as many batches at once as there are devices."""
    if len(shares) == 1:
        prefetcher = DevicePrefetcher(shares[0].device, floats=shares[0].floats)
        yield from ([shares[0](batch)] for batch in prefetcher(batches))
        return
    while group := list(islice(batches, len(shares))):
        busy = shares[: len(group)]
        tasks = [partial(_on_device, share, batch) for share, batch in zip(busy, group, strict=True)]
        yield compute_side_by_side(tasks, [share.device for share in busy])


def _on_device(share: _Predictor, batch: Batch) -> list[tuple[Any, int]]:
    return share(cast_floats(move_data_to_device(batch, share.device), share.floats))


def _fetched(parts: list[tuple[Any, int]]) -> list[PartOutput]:
    return [PartOutput(to_host(value), samples) for value, samples in parts]
