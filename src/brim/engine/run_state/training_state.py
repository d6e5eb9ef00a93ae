"""Everything that changes while a run goes on, as what a checkpoint holds of it, and from that again."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from brim.data.randomness.generators import generator_states, restore_generators, seed_rank
from brim.engine.components.optimizer_state import match_layouts
from brim.engine.components.precision import Precision
from brim.engine.components.schedule import take_curve
from brim.engine.distributed.ranks import Ranks
from brim.engine.run_state.beside_model import BesideModel
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.schedule_record import ScheduleRecord
from brim.engine.run_state.trained_parameters import TrainedParameters
from brim.engine.run_state.user_state import UserState, without_repeats
from brim.engine.state.formed_buffers import Shapes, buffer_shapes, formed_buffers
from brim.engine.state.gathered_state import GatheredState, optimizer_parts
from brim.engine.state.host_copy import HostModel, host_copy, without_numpy
from brim.engine.state.weight_average import KeepsAverage


class KeepsState(Protocol):
    """What has a state of its own in a checkpoint."""

    def state(self) -> dict[str, Any]: ...

    def restore(self, saved: dict[str, Any]) -> list[str]: ...


@dataclass
class TrainingState:
    """Everything that changes while a run goes on."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    precision: Precision
    progress: Progress
    ranks: Ranks = field(default_factory=Ranks)
    generators: list[dict[str, Any]] = field(default_factory=list)  # of all ranks, as last gathered
    beside: BesideModel = field(default_factory=BesideModel)
    schedule: ScheduleRecord | None = None
    order_generators: dict[str, Any] = field(default_factory=dict)  # of the user's samplers, as the epoch began
    ema: KeepsAverage | None = None
    callbacks: KeepsState | None = None
    gathered: GatheredState | None = None  # where the model is sharded
    user_state: UserState | None = None  # what the user's code keeps in Python
    user_states: list[dict[str, Any]] = field(default_factory=list)  # of that, on all ranks, as last gathered
    joins: bool = False  # whether what is thawed joins the optimizer, as it does one that brim made
    trained: TrainedParameters = field(init=False)
    buffers_at_start: Shapes = field(init=False)

    def __post_init__(self) -> None:
        self.trained = TrainedParameters(self.model, self.optimizer, self.joins)
        self.buffers_at_start = buffer_shapes(self.model)

    def gather_state(self) -> str | None:
        """Before a checkpoint: the first rank writes it, with the generators of all. Returns what to tell the user."""
        if not self.ranks.is_alone:
            self.beside.share_buffers(self.ranks)
            self.generators = self.ranks.all_gather_object(generator_states(self.precision.device))
        self.gather_weights()
        if self.gathered is not None:
            self.gathered.gather_optimizer(self.optimizer, self.ranks.is_first)
            self.gathered.gather_average(self.ema, self.model, self.ranks.is_first)
        if self.user_state is None:
            return None
        taken = self.user_state.take(self.model)
        of_ranks = [taken] if self.ranks.is_alone else self.ranks.all_gather_object(host_copy(taken))
        self.user_states = without_repeats(of_ranks)
        return self.user_state.remark(self.user_states)

    def gather_weights(self) -> None:
        """The same where only the weights are to be written."""
        if self.gathered is not None:
            self.gathered.gather_weights(self.model, self.ranks.is_first)

    def weights(self) -> nn.Module | HostModel:
        """What has the weights to be written."""
        return self.model if self.gathered is None else HostModel.holding(self.gathered.weights)

    def optimizer_state(self) -> dict[str, Any]:
        return dict(self.optimizer.state_dict()) if self.gathered is None else self.gathered.optimizer

    def average_state(self, ema: KeepsAverage) -> dict[str, Any]:
        return ema.state(self.model) if self.gathered is None else self.gathered.average

    def forget_copies(self) -> None:
        """After a checkpoint: what was made for it alone is let go."""
        self.user_states = []
        if self.gathered is not None:
            self.gathered.forget()

    def tensors(self) -> dict[str, Any]:
        scaler = self.precision.scaler
        return {
            "rank_generators": self.generators,
            "optimizer_class": type(self.optimizer).__name__,
            "optimizer": without_numpy(self.optimizer_state()),
            "scheduler": None if self.scheduler is None else without_numpy(self.scheduler.state_dict()),
            "scaler": None if scaler is None else scaler.state_dict(),
            "generators": generator_states(self.precision.device),
            "schedule": None if self.schedule is None else self.schedule.to_saved(),
            **self.trained.state(),
            "formed": formed_buffers(self.model, self.buffers_at_start),
            "beside": without_numpy(self.beside.state()),
            "order_generators": self.order_generators,
            "callbacks": {} if self.callbacks is None else self.callbacks.state(),
            "own": self.user_states,
            **({} if self.ema is None else {"ema": self.average_state(self.ema)}),
        }

    def check_alike(self, tensors: dict[str, Any]) -> None:
        """Refuse to go on with another optimizer or schedule than the checkpoint's, before anything has changed."""
        saved, own = tensors["optimizer_class"], type(self.optimizer).__name__
        if saved != own:
            raise ValueError(f"it was made with the optimizer {saved}, and this run has {own}")
        schedule = ScheduleRecord.from_saved(tensors.get("schedule"))
        refusal = schedule.refusal(self.schedule) if schedule is not None and self.schedule is not None else None
        if refusal is not None:
            raise ValueError(refusal)

    def restore(self, tensors: dict[str, Any], progress: Progress, goes_back: bool = False) -> list[str]:
        """Become what a checkpoint holds beside the weights; returns what to tell the user."""
        told: list[str] = []
        if goes_back:
            self.trained.go_back(tensors, progress.step)
        else:
            told += self.trained.resume(tensors)
        saved = tensors["optimizer"]
        self.optimizer.load_state_dict(saved if self.gathered is None else optimizer_parts(saved, self.optimizer))
        match_layouts(self.optimizer)
        if self.scheduler is not None and tensors["scheduler"] is not None:
            self.scheduler.load_state_dict(tensors["scheduler"])
        if self.precision.scaler is not None and tensors["scaler"] is not None:
            self.precision.scaler.load_state_dict(tensors["scaler"])
        of_ranks = tensors.get("rank_generators") or [tensors["generators"]]
        if len(of_ranks) == self.ranks.world:
            restore_generators(of_ranks[self.ranks.rank], self.precision.device)
        elif self.ranks.is_first:
            restore_generators(tensors["generators"], self.precision.device)
        else:  # there was no such rank: a stream of its own
            seed_rank(progress.step, self.ranks.rank)
        self.order_generators.clear()
        self.order_generators.update(tensors.get("order_generators", {}))
        if "beside" in tensors:
            lost = self.beside.restore(tensors["beside"], self.precision.device)
            told += [f"the checkpoint holds the state of {name}, which this run's loss does not have" for name in lost]
        told += self._restore_average(tensors.get("ema"))
        told += [] if self.callbacks is None else self.callbacks.restore(tensors.get("callbacks", {}))
        if self.user_state is not None:
            saved, place = tensors.get("own", []), (self.ranks.rank, self.ranks.world)
            told += self.user_state.restore(self.model, saved, *place, goes_back)
        schedule = ScheduleRecord.from_saved(tensors.get("schedule"))
        remark = schedule.remark(self.schedule) if schedule is not None and self.schedule is not None else None
        if schedule is not None and self.schedule is not None:
            if schedule.ends_elsewhere(self.schedule) and isinstance(self.scheduler, LambdaLR):
                take_curve(self.scheduler)
            self.schedule = self.schedule.counting_as(schedule)
        vars(self.progress).update(vars(progress))
        return [*told, remark] if remark is not None else told

    def _restore_average(self, saved: dict[str, Any] | None) -> list[str]:
        if self.ema is None:
            return [] if saved is None else ["the averaged weights of the checkpoint are left: this run has no ema"]
        if saved is None:
            return ["the checkpoint has no averaged weights: ema begins with the next step"]
        self.ema.restore(saved, self.model)
        return []
