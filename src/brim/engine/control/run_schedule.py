"""The learning-rate schedule of a run: made, scaled for the ranks, and told to the user."""

from dataclasses import dataclass, field

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from brim.engine.components.schedule import SchedulerLike, lr_factor, make_scheduler, scale_optimizer, with_warm_up
from brim.engine.components.schedule_unit import EPOCH, EVALUATION, describe_unit, forecast_rate, unit_of
from brim.engine.components.settings import TrainerSettings
from brim.engine.run_state.schedule_record import ScheduleRecord
from brim.engine.run_state.training_state import TrainingState
from brim.errors import ConfigError
from brim.record import Journal


@dataclass
class RunSchedule:
    """``wanted`` as the user gave it; each run of a trainer makes its schedule of it."""

    wanted: SchedulerLike | None
    settings: TrainerSettings
    journal: Journal
    _was_scaled: Optimizer | None = field(default=None, init=False)  # one of the user's own may come a second time

    def make(
        self, optimizer: Optimizer, total_steps: int | None, ranks: int, gpus: int = 1
    ) -> tuple[LRScheduler | None, ScheduleRecord]:
        """The schedule, and what a checkpoint keeps of it. ``gpus``: those that each rank computes on."""
        made = make_scheduler(self._scaled(optimizer, ranks, gpus), optimizer, total_steps)
        settings = self.settings
        unit = unit_of(self.wanted, made, settings.scheduler_every, settings.epochs, settings.max_steps)
        return made, ScheduleRecord.of(self.wanted, made, total_steps, unit, settings.scheduler_every is not None)

    def _scaled(self, optimizer: Optimizer, ranks: int, gpus: int) -> SchedulerLike | None:
        """The schedule; with ``scale_lr`` the rate is first scaled for ranks, or for GPUs of one, and warmed up."""
        rule = self.settings.scale_lr
        factor = lr_factor(rule, ranks * gpus)
        if factor == 1:
            return self.wanted
        if optimizer is not self._was_scaled:
            scale_optimizer(optimizer, factor)
            self._was_scaled = optimizer
        rate = optimizer.param_groups[0]["lr"]
        schedule = with_warm_up(self.wanted)
        how = "with the schedule as it is" if schedule is self.wanted else "after a warm-up"
        several = f"{gpus} GPUs" if gpus > 1 else f"{ranks} ranks"
        self.journal.say(f"scale_lr={rule!r}: lr is {rate:g} for {several}, {how}", "lr", lr=rate)
        return schedule

    def report(self, state: TrainingState, total_steps: int | None, steps_per_epoch: int | None) -> None:
        """Log what the schedule counts and where its rate ends; called once the state is that of a checkpoint."""
        scheduler, record, progress = state.scheduler, state.schedule, state.progress
        if scheduler is None or record is None or record.unit == EVALUATION:
            return
        done, total = progress.step, total_steps
        if record.unit == EPOCH:
            done, total = progress.epoch, self.settings.epochs
            if self.settings.max_steps is not None:
                total = None if steps_per_epoch is None else -(-self.settings.max_steps // steps_per_epoch)
        if isinstance(scheduler, OneCycleLR) and total is not None and not self.settings.fast_dev_run:
            self._check_cycle(scheduler, total - done, record.unit)
        rate = forecast_rate(scheduler, done, total)
        line = describe_unit(record.kind, record.unit, record.unit_is_asked or record.is_named, rate, total)
        self.journal.say(line, "schedule", unit=record.unit, lr=rate.now, last_lr=rate.last)
        if isinstance(scheduler, CosineAnnealingLR) and total is not None and total > scheduler.T_max:
            self.journal.warn(
                f"CosineAnnealingLR(T_max={scheduler.T_max}) is at its lowest after {scheduler.T_max:,} {record.unit}s "
                f"and rises again in a run of {total:,}",
                "schedule",
            )
        is_unmoved = rate.last == rate.now and not done and total is not None and total > 1
        if record.unit == EPOCH and is_unmoved and not record.unit_is_asked:
            self.journal.warn(
                f"{record.kind} counts epochs and changes nothing in {total:,} of them; if it is meant in optimizer "
                "steps, pass scheduler_every='step'",
                "schedule",
            )

    def _check_cycle(self, scheduler: OneCycleLR, left: int, unit: str) -> None:
        """Refuse a cycle that torch would end the run with, and warn of one that the run ends in the middle of."""
        whole, end = scheduler.total_steps, scheduler.last_epoch + left
        if end > whole:
            raise ConfigError(
                f"OneCycleLR(total_steps={whole:,}) is over before the run, which has {end:,} {unit}s, and torch would "
                f"end it with an error; make it total_steps={end:,}: optimizer steps, or epochs with "
                "scheduler_every='epoch'"
            )
        if end < whole:
            self.journal.warn(
                f"OneCycleLR(total_steps={whole:,}) is not over when the run ends, after {end:,} {unit}s: its rate "
                f"never falls to where it should; make it total_steps={end:,}, in optimizer steps (of several "
                "batches, where gradients are accumulated) or epochs",
                "schedule",
            )
