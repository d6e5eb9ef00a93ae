"""One call of ``fit``: the run folder, the run in it from its first callback to its last, and what is left of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from brim.engine.checkpoints.weights import save_weights
from brim.engine.components.two_pass import criterion_in
from brim.engine.components.weights_before import WeightsBefore
from brim.engine.control.dry_run import dry_folder, generators_put_back, put_back, python_put_back
from brim.engine.evaluation.evaluation import detach_ranks
from brim.engine.mistakes.torch_errors import explained_errors
from brim.engine.oom.activation_checkpointing import checkpointing_put_back
from brim.engine.run.assembly import Assembly, RunParts
from brim.engine.run.environment import training_environment
from brim.engine.run.training_run import TrainingRun
from brim.engine.run.training_setup import TrainingSetup
from brim.engine.run_folder.about_run import about_run
from brim.engine.run_folder.live_page import LivePage
from brim.engine.run_folder.opened_run import OpenedRun, opened_run
from brim.engine.run_folder.result import Result
from brim.engine.run_folder.run_files import begin_page, describe_run, write_outcome
from brim.engine.step.nonfinite import Rewind
from brim.engine.step.transaction import OptimizerRanOut
from brim.errors import BadNumbers, CannotFit, RanksLost
from brim.logits.chunked_head import chunked_logits
from brim.module_modes import training_modes
from brim.record import RunFolder

if TYPE_CHECKING:
    from brim.engine.trainer import Trainer


@dataclass(frozen=True)
class Fit:
    """``trainer`` is what callbacks are handed; ``begin`` is called with the run before its first callback."""

    trainer: Trainer
    assembly: Assembly
    begin: Callable[[TrainingRun], None]

    @property
    def setup(self) -> TrainingSetup:
        return self.assembly.setup

    def dry_run(self) -> Result:
        """One batch of everything, without a trace."""
        setup, trainer = self.setup, self.trainer
        settings = setup.settings
        parts = setup.model, setup.loss_fn, criterion_in(setup.loss_fn), settings.optimizer, settings.scheduler
        data = trainer.train_data, trainer.eval_data, trainer.test_data
        modules = [part for part in parts if isinstance(part, nn.Module)]
        users = [part for part in parts if not isinstance(part, Optimizer | LRScheduler)]
        with (
            dry_folder(trainer.run_dir) as folder, put_back(*parts), generators_put_back(*data),
            python_put_back(*users, but_for=modules) as why_not,
        ):  # fmt: skip
            result = self.run(folder)
        setup.journal.say(
            "fast_dev_run: one batch of everything went through; nothing was written, weights are as before"
            + (f", but what the loss keeps in Python may not be: {why_not}" if why_not else "")
        )
        return result

    def run(
        self,
        run_dir: str | Path | None,
        resume: str | Path | None = None,
        save_model: bool = False,
        model_path: str | Path | None = None,
    ) -> Result:
        """Train in a folder of the run's own, from its beginning or from a checkpoint."""
        began = time.perf_counter()
        setup, trainer = self.setup, self.trainer
        name = type(setup.model).__name__.lower()
        try:
            with self._conditions() as before:
                parts = self.assembly.parts(trainer.train_data, trainer.eval_data, trainer.test_data)
                is_dry = setup.settings.fast_dev_run
                with opened_run(setup.ranks, setup.journal, resume, run_dir, name, is_dry) as opened:
                    run = self.assembly.run(parts, opened, resume is not None, trainer)
                    with closing(run.log):
                        if setup.ranks.is_first:
                            run.page = self._describe(opened.folder, run)
                        before.drop()
                        metrics = self._train(run, opened)
                    if save_model and setup.ranks.is_first:
                        save_weights(setup.model, Path(model_path or opened.folder.location / "model.safetensors"))
                    progress, ended = run.state.progress, run.stopping.reason or "done"
                    seconds = time.perf_counter() - began
                    opened.result = Result(opened.folder.path, progress.step, progress.epoch, seconds, ended, metrics)
                    self._write_outcome(opened.own, opened.result, run, parts)
                    setup.ranks.barrier()  # what the first rank has written is there for all
                    return opened.result
        finally:
            detach_ranks(trainer.eval_data, trainer.test_data)

    @contextmanager
    def _conditions(self) -> Iterator[WeightsBefore]:
        """What torch and the model are while the run lasts, and are not afterwards."""
        setup, settings = self.setup, self.setup.settings
        environment = training_environment(settings.seed, settings.deterministic, setup.precision.tf32)
        say = partial(setup.journal.say, kind="modes") if setup.ranks.is_first else lambda sentence: None
        modes = training_modes(setup.model, say)
        before = WeightsBefore(setup.precision, setup.model, setup.loss_fn)
        waits = settings.fit == "auto" and not settings.compile
        chunked = chunked_logits(setup.model, settings.logits, partial(setup.journal.warn, kind="logits"), waits)
        with environment, modes, before, chunked, checkpointing_put_back(setup.model):
            yield before

    def _describe(self, folder: RunFolder, run: TrainingRun) -> LivePage:
        """Leave what the run is, and begin its page."""
        setup, trainer, optimizer = self.setup, self.trainer, run.state.optimizer
        facts = {
            "device": str(setup.device), "precision": setup.precision.name, "ranks": setup.ranks.world,
            "strategy": setup.strategy, "devices": len(setup.devices),
        }  # fmt: skip
        describe_run(folder, trainer.config, setup.settings, setup.model, optimizer, **facts)
        about = about_run(
            setup.model, optimizer, run.feed, run.accumulation, setup.ranks.world, training_data=trainer.train_data,
            evaluation_data=trainer.eval_data, test_data=trainer.test_data, steps=run.bounds.total_steps(run.feed),
        )  # fmt: skip
        page = begin_page(folder, about, run.log.file.flush)
        run.log.begin()
        return page

    def _train(self, run: TrainingRun, opened: OpenedRun) -> dict[str, float]:
        """Train, and return the metrics of the weights that came of it: by the test data, where there is any."""
        trainer = self.trainer
        self.begin(run)
        try:
            with trainer.callbacks.reporting_errors(trainer, self.setup.journal.warn):
                metrics = train_whole(run, self.setup.device)
                metrics = metrics if trainer.test_data is None else trainer.evaluate()
            if run.sharded is not None:
                run.sharded.end(self.setup.device)
            return metrics
        finally:
            run.sharded = None
            opened.has_begun, opened.stopped_by = run.state.progress.step > 0, run.stopping.interrupt.by

    def _write_outcome(self, folder: RunFolder, result: Result, run: TrainingRun, parts: RunParts) -> None:
        monitor = None if parts.evaluator is None else run.evaluations.monitor
        metrics_of = "validation" if self.trainer.test_data is None else "test"
        choices = {"capture": asdict(self.trainer.captured), **run.findings.choices()}
        journal = self.setup.journal
        write_outcome(folder, journal, result.as_json(), run.findings.plan, monitor, metrics_of, choices)


@explained_errors
def train_whole(run: TrainingRun, device: torch.device) -> dict[str, float]:
    """Train; the model has what comes of it, on ``device``. Returns its metrics by the evaluation data.

    Raises:
        Interrupted: a signal ended it, and there is a checkpoint to go on from; Preempted if it was not Ctrl-C.
    """
    try:
        if run.state.progress.step:  # of a checkpoint
            run.callbacks.call("on_load", run.trainer, run.state.progress.step)
        run.callbacks.call("on_fit_start", run.trainer)
        with run.stopping.interrupt:
            run.train()
    except OptimizerRanOut:
        raise
    except CannotFit as error:  # no step was left half done, so what was reached can be kept
        run.saver.wait()
        if run.ranks.is_alone or getattr(error, "is_on_all_ranks", False):  # else the others are elsewhere
            with suppress(Rewind, BadNumbers):  # nothing worth keeping
                run.save()
        raise
    finally:
        run.saver.wait()
        run.log.bar.close()
        run.stopping.is_live = False
        # Memory cannot be given back while the device waits for ranks that are lost.
        if sys.exception() is not None and not isinstance(sys.exception(), RanksLost):
            run.reclaim_memory()
    metrics = {} if run.stopping.was_interrupted else run.final.restore_best()
    _end(run, device)
    if run.stopping.was_interrupted:
        whole = run.checkpoints.all()
        raise run.stopping.error(run.state.progress.step, run.checkpoints.shown(whole[-1]) if whole else None)
    run.final.keep()
    if run.stopping.reason is not None:
        run.journal.note(f"stopped: {run.stopping.reason}", "stopped")  # the last line says why as well
    return metrics


def _end(run: TrainingRun, device: torch.device) -> None:
    """The last callbacks and notes, once the model has the weights that the run ends with."""
    if run.sharded is not None and run.callbacks.handles("on_fit_end"):
        run.sharded.end(device)  # callbacks see the user's own model, and have the last word on it
        run.sharded = None
    run.callbacks.call("on_fit_end", run.trainer)
    run.log.write_logged(run.state.progress)
    run.reclaim_memory()  # a trainer that is done holds no memory for steps to come
    run.findings.notes.peak(run.guard.watch, run.findings.plan, run.findings.resident)
    if run.captured is not None:
        run.findings.notes.replays(run.captured.report)
