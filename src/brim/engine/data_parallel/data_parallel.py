"""DataParallel in one process: a batch's loss, computed on several devices at once.

No launcher is needed, so it works in a notebook. The model is copied to the other devices for every step and Python
drives all of them, so ranks (``torchrun``, ``brim train``) are faster.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length, move_data_to_device, slice_batch
from brim.data.randomness.order import GOLDEN, mix64, rank_bounds
from brim.engine.calling.compiler import AUTO
from brim.engine.components.loss import Loss, LossFunction, as_sum, loss_of
from brim.engine.components.precision import Precision
from brim.engine.components.settings import TrainerSettings
from brim.engine.components.two_pass import TwoPass
from brim.engine.data_parallel.device_threads import compute_side_by_side
from brim.engine.data_parallel.replicas import ONE_GPU, Replicas, Replicate, torch_replicate, why_not_replicable
from brim.engine.numbers.pass_notes import PassNotes, weighted
from brim.engine.numbers.summed_loss import counted
from brim.engine.splitting.batch_norms import has_batch_norm
from brim.engine.splitting.splitting import Splitting
from brim.errors import ConfigError

TWO_PASSES = (
    "loss_fn is brim.TwoPass, whose loss is over the whole batch, and several GPUs in one process would each compute a "
    "share of it; with torchrun and brim.gather in the loss all of them compute it"
)


class DataParallelLoss:
    """The loss of a batch as sum and count over ``devices``, each of which computes a share; the first has the model.

    Shares are cut as ranks cut them, their sums and counts are added up: the result is the mean over the whole batch
    however uneven the shares are. ``tell`` hears what the user should know. A loss that looks across the batch would be
    another one in shares: unless ``sliceable`` says that it does not, the first batch shows it, and then the first
    device computes alone.

    >>> compute = DataParallelLoss(nn.Linear(3, 1), nn.MSELoss(), [torch.device("cpu")])
    >>> compute((torch.ones(4, 3), torch.ones(4, 1))).shape
    torch.Size([])
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        devices: Sequence[torch.device],
        sliceable: bool | None = None,
        tell: Callable[[str], Any] = lambda sentence: None,
        make_replicas: Replicate = torch_replicate,
        notes: PassNotes | None = None,
    ) -> None:
        self.model = model
        self.loss_fn = loss_fn
        self.devices = list(devices)
        self.tell = tell
        self.make_replicas = make_replicas
        self.notes = notes or PassNotes()
        self.counted = loss_of(model, loss_fn, self.notes)
        self.splitting = Splitting(self.counted, model, Precision("32", self.devices[0]), sliceable)
        self._copied = _Copied(model, loss_fn if isinstance(loss_fn, nn.Module) else None)
        self._sliceable = sliceable
        self._has_looked = False
        self._has_told_of_norms = False
        self._notes_state = True  # in the first step
        self._smallest = 2 if has_batch_norm(model) else 1  # a norm has no statistics of a single sample
        if len(self.devices) > 1:
            self._check()

    def __call__(self, batch: Batch) -> Tensor | Loss:
        if len(self.devices) > 1 and not self._has_looked:
            self._has_looked = True
            self.look_at(batch)
        if len(self.devices) == 1:
            return self.counted(batch)
        length = batch_length(batch)
        used = self.devices[: max(1, min(len(self.devices), length // self._smallest))]
        if len(used) == 1:
            return self.counted(batch)
        shares = [slice_batch(batch, *rank_bounds(0, length, number, len(used))) for number in range(len(used))]
        return self._compute_on_replicas(shares, used)

    def _compute_on_replicas(self, shares: list[Batch], devices: list[torch.device]) -> Loss:
        self._tell_of_norms()
        replicas = Replicas(self._copied, devices, self.make_replicas, self._notes_state)
        moved = [move_data_to_device(share, device) for share, device in zip(shares, devices, strict=True)]
        draw_apart(devices)
        tasks = [partial(self._share_loss, *pair) for pair in zip(replicas.models, moved, strict=True)]
        found = compute_side_by_side(tasks, devices)
        for name, number in chain.from_iterable(numbers for _, numbers in found):
            self.notes.log(name, number)
        replicas.keep_buffers()
        if self._notes_state:
            self._notes_state = False
            self._tell_of_state(replicas.lost_state())
        return _sum([loss for loss, _ in found], devices[0])

    def _share_loss(self, copied: Any, share: Batch) -> tuple[Loss, list[tuple[str, Loss]]]:
        """Of one device, with what its share logs as sums, for shares are not equally large."""
        loss_fn = self.loss_fn if copied.loss_fn is None else copied.loss_fn
        count = self.counted.count_of(share)  # before the call, which may take things out of the batch
        with self.notes.taking() as taken:
            loss = loss_of(copied.model, loss_fn, self.notes)(share)
        found = as_sum(loss if count is None else counted(loss, count), batch_length(share))
        home, numbers = self.devices[0], []
        for name, value in taken.numbers:
            total, weight = weighted(value, found.count, found.total.device)
            numbers.append((name, Loss(total.to(home), weight.to(home) if isinstance(weight, Tensor) else weight)))
        return found, numbers

    def _check(self) -> None:
        """Refuse what cannot be computed in shares, or copied."""
        if isinstance(self.loss_fn, TwoPass):
            raise ConfigError(f"strategy='dp' cannot be used: {TWO_PASSES}")
        if self._sliceable is False:
            raise ConfigError(
                f"sliceable=False, and {len(self.devices)} GPUs would each compute a share of the batch; "
                "use one (use_multi_gpu=False)"
            )
        reason = why_not_replicable(self._copied, self.devices[0])
        if reason is not None:
            raise ConfigError(f"the model cannot be copied to {len(self.devices)} GPUs: {reason}")

    def look_at(self, batch: Batch) -> None:
        """Before the first batch is shared out: whether its loss is what its parts' losses add up to."""
        with self.notes.taking():  # which nobody reads: trials of the loss log nothing
            verdict = self.splitting.judge([batch])
        if not verdict.gives_count and not self._sliceable:
            self.tell(
                f"{self.splitting.why_whole()}; so {self.devices[0]} computes it alone, and the other GPUs are idle"
            )
            del self.devices[1:]
            return
        for sentence in self.splitting.differences(f"the parts of {len(self.devices)} GPUs"):
            self.tell(sentence)

    def _tell_of_norms(self) -> None:
        if self._smallest > 1 and self.model.training and not self._has_told_of_norms:
            self._has_told_of_norms = True
            self.tell(
                "each GPU has its own BatchNorm statistics, so this is another training than on one GPU, and the first "
                "one's are kept; nn.SyncBatchNorm makes them those of all, over ranks (torchrun) only"
            )

    def _tell_of_state(self, names: list[str]) -> None:
        if names:
            self.tell(
                f"{', '.join(names[:3])} is set while the loss is computed, on a copy of the model that is gone after "
                f"the step, so it is lost; make it a buffer, {ONE_GPU}"
            )


class _Copied(nn.Module):
    """What is copied to the devices: the model, and a loss with buffers of its own (class weights, say)."""

    def __init__(self, model: nn.Module, loss_fn: nn.Module | None) -> None:
        super().__init__()
        self.model = model
        self.loss_fn = loss_fn


def _sum(losses: Sequence[Loss], home: torch.device) -> Loss:
    counts = [loss.count.to(home) if isinstance(loss.count, Tensor) else loss.count for loss in losses]
    total, count = losses[0].total.to(home), counts[0]
    for loss, more in zip(losses[1:], counts[1:], strict=True):
        total, count = total + loss.total.to(home), count + more
    return Loss(total, count)


def devices_for(
    model: nn.Module, devices: Sequence[torch.device], settings: TrainerSettings
) -> tuple[list[torch.device], str]:
    """Those of ``devices`` that a trainer with these settings computes on, and a sentence where that is one of several.

    What was asked for by name comes before more GPUs; with ``strategy="dp"`` both were, which is refused.
    """
    home, strategy = devices[0], settings.strategy
    if len(devices) == 1 or strategy not in ("auto", "dp"):
        return [home], ""
    if settings.sliceable is False:
        reason: str | None = "sliceable=False, and several GPUs would each compute a share of the batch"
    elif settings.capture == "require":
        reason = "capture='require', and steps over several GPUs in one process are not captured"
    elif settings.compile and settings.compile != AUTO:
        reason = "compile is set, and steps over several GPUs in one process are not compiled"
    elif has_batch_norm(model) and strategy == "auto":
        reason = "the model has BatchNorm, and each GPU's statistics would be another training (strategy='dp' does so)"
    else:
        where = next((tensor.device for tensor in chain(model.parameters(), model.buffers())), home)
        # A model that is whole on the CPU, or on another GPU, is moved home before training.
        reason = why_not_replicable(model, where if where.type in ("cpu", home.type) else home)
    if reason is None:
        return list(devices), ""
    if strategy == "dp":
        raise ConfigError(f"strategy='dp' cannot be used: {reason}")
    return [home], f"{reason}; so training is on {home} alone, and torchrun or brim train would use all of them"


def draw_apart(devices: Sequence[torch.device], generators: Any = None) -> None:
    """Give the other GPUs random numbers of their own, as a function of where the first one's stand.

    ``torch.manual_seed`` seeds all alike, so they would drop the same neurons. And whatever puts the first one's
    generator back (a step tried again, a resumed run) puts all of them back.
    """
    if devices[0].type != "cuda":
        return
    generators = torch.cuda.default_generators if generators is None else generators
    first = generators[devices[0].index]
    place = mix64(mix64(first.initial_seed() + GOLDEN) + first.get_offset())
    for index in {device.index for device in devices} - {devices[0].index}:
        generators[index].manual_seed(mix64(place + index * GOLDEN) >> 1)
