"""The trainer: settings in, a trained model and a run folder out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.data import DevicePrefetcher, Feed, Loader, as_feed, batches_per_epoch
from brim.data.feed import ReadyBatches
from brim.engine.bad_numbers import NumbersGuard
from brim.engine.cadence import Cadence
from brim.engine.callbacks import Callback, Callbacks
from brim.engine.checkpoint import Checkpoints, TrainingState
from brim.engine.environment import training_environment
from brim.engine.evaluation import Evaluator, as_evaluator, evaluate_model, predict
from brim.engine.guard import GuardedStep, OptimizerRanOut, has_batch_norm
from brim.engine.loss import LossFunction, LossOf, loss_of
from brim.engine.memory_plan import PlannedStep
from brim.engine.optimizer import OptimizerLike, make_optimizer
from brim.engine.precision import Precision
from brim.engine.progress import Progress
from brim.engine.saver import Saver
from brim.engine.schedule import SchedulerLike, make_scheduler
from brim.engine.settings import check_settings
from brim.engine.step import EagerStep
from brim.engine.step_log import StepLog
from brim.engine.threads import StepLike, with_threads
from brim.engine.training_run import Bounds, TrainingRun
from brim.engine.weights import save_weights
from brim.errors import BrimError, CannotFit, ConfigError, DataError, Interrupted, Preempted, RunFolderError
from brim.hardware import choose_device, inventory
from brim.memory import Plan
from brim.memory.sizes import show_bytes
from brim.record import Journal, MetricsFile, ProgressBar, RunFolder, write_report
from brim.record.run_folder import CONFIG, MACHINE, MODEL, PLAN, RESULT


@dataclass(frozen=True)
class Result:
    """What came of a run. ``metrics`` are those of the test data, or of the evaluation data where there is none."""

    run: Path
    steps: int
    epochs: int
    seconds: float
    ended: str
    metrics: dict[str, float]


class Trainer:
    """Trains ``model`` on ``train_data``.

    The model has ``calculate_loss(batch)``, or ``loss_fn`` says how a batch becomes a loss. ``train_data`` is a loader
    of brim's, a torch DataLoader, a Dataset, a tuple of tensors or a list of ready batches; its batch size times
    ``gradient_accumulation_steps`` is the optimisation batch, and nothing else brim chooses changes it.

    >>> x = torch.randn(64, 3)
    >>> data = [(x, x.sum(1, keepdim=True))]
    >>> trainer = Trainer(nn.Linear(3, 1), data, loss_fn=nn.MSELoss(), device="cpu", epochs=2)
    >>> trainer.fit().steps  # doctest: +SKIP
    2
    """

    def __init__(
        self,
        model: nn.Module,
        train_data: Any,
        eval_data: Any = None,
        test_data: Any = None,
        *,
        loss_fn: LossFunction | None = None,
        optimizer: OptimizerLike | None = None,
        scheduler: SchedulerLike | None = None,
        lr: float = 1e-3,
        epochs: int = 1,
        max_steps: int | None = None,
        clip_norm: float | None = None,
        seed: int = 0,
        deterministic: bool = False,
        device: str | torch.device = "cuda",
        use_multi_gpu: bool = True,
        strategy: str = "auto",
        micro_batch: int | str = "auto",
        gradient_accumulation_steps: int = 1,
        precision: str = "32",
        capture: str = "auto",
        compile: bool | str = False,
        threads: int | str = "auto",
        sliceable: bool | None = None,
        checkpointing: str | bool | None = None,
        on_nan: str = "stop",
        scale_lr: str | None = None,
        eval_every: int | str = 1,
        patience: int | None = None,
        log_every: int = 50,
        checkpoint_every: int | None = None,
        keep: int = 3,
        run_dir: str | Path | None = None,
        callbacks: Sequence[Callback] = (),
        accumulate_grad_batches: int | None = None,
    ) -> None:
        if accumulate_grad_batches is not None:
            gradient_accumulation_steps = accumulate_grad_batches
        self.settings = {name: value for name, value in locals().items() if name != "self"}
        check_settings(self.settings)
        self.journal = Journal()
        self.callbacks = Callbacks(tuple(callbacks))
        choice = choose_device(device, inventory(), use_multi_gpu)
        (self.journal.warn if choice.is_fallback else self.journal.say)(choice.sentence, "device")
        self.device = choice.device
        self.precision = Precision(precision, choice.device)
        self.model = model.to(choice.device)
        self.train_data, self.eval_data, self.test_data = train_data, eval_data, test_data
        self.loss_fn, self.optimizer, self.scheduler, self.lr = loss_fn, optimizer, scheduler, float(lr)
        self.seed, self.deterministic, self.threads = seed, deterministic, threads
        self.micro_batch = None if isinstance(micro_batch, str) else micro_batch
        self.accumulation = gradient_accumulation_steps
        self.clip_norm, self.compile = clip_norm, compile
        self.bounds = Bounds(epochs, max_steps, Cadence.parse(eval_every), patience, checkpoint_every)
        self.log_every, self.keep, self.run_dir = log_every, keep, run_dir
        if isinstance(loss_fn, nn.Module):
            loss_fn.to(choice.device)  # class weights, say
        self._compute = loss_of(model, loss_fn)
        self.config: str | None = None  # what config.yaml of the run folder holds; by default these settings
        self.plan: Plan | None = None  # made from the first batch, on a GPU
        self._run: TrainingRun | None = None

    def fit(
        self, save_model: bool = False, model_path: str | Path | None = None, resume: str | Path | None = None
    ) -> Result:
        """Train, and leave the model with its best weights by ``eval_data`` (its last ones where there is none).

        ``save_model`` writes those to ``model_path``: ``.pt``/``.pth`` for a plain state_dict, ``.safetensors`` for
        safetensors. ``resume`` continues a run: its folder, or ``"auto"`` for the one at ``run_dir`` if it exists.
        """
        began = time.perf_counter()
        if save_model:
            _check_model_path(model_path)
        with training_environment(self.seed, self.deterministic, self.precision.name == "tf32"):
            feed, state, evaluator = (
                self._assemble()
            )  # whatever cannot work is refused here, before anything is written
            folder = self._folder(resume)
            self.journal.attach(folder)
            try:
                self._describe(folder)
                run = self._prepare(folder, feed, state, evaluator, resumes=resume is not None)
                self._train(run)
                metrics = self._final_metrics(run)
                if save_model:
                    save_weights(self.model, Path(model_path or folder.path / "model.safetensors"))
                seconds, ended = time.perf_counter() - began, run.stop_reason or "done"
                result = Result(folder.path, state.progress.step, state.progress.epoch, seconds, ended, metrics)
                self._conclude(folder, result, evaluator)
            except Exception as error:
                self.journal.note(f"ended with an error: {error}", "failed")
                raise
            finally:
                self._show(folder)
                self.journal.close()
        return result

    def evaluate(self, data: Any = None) -> dict[str, float]:
        """The metrics of ``data`` (by default the test data): its own, or the mean loss."""
        chosen = next((d for d in (data, self.test_data, self.eval_data) if d is not None), None)
        if chosen is None:
            raise ConfigError("there is nothing to evaluate on; pass data, or give the trainer test_data or eval_data")
        return evaluate_model(self._evaluator(chosen), self.model)

    def _evaluator(self, data: Any) -> Evaluator:
        warn = partial(self.journal.warn, kind="memory")
        return as_evaluator(data, self._compute, self.precision, self.settings["sliceable"], warn)

    def predict(self, data: Any) -> Any:
        """The model's outputs for ``data`` in its order, gathered on the device and copied to the CPU once."""
        return predict(self.model, data, self.loss_fn, self.precision)

    def stop(self, reason: str) -> None:
        """End the run after the current step; for callbacks."""
        if self._run is not None:
            self._run.stop_reason = reason

    def _folder(self, resume: str | Path | None) -> RunFolder:
        if resume is None:
            return RunFolder.create(self.run_dir, name=type(self.model).__name__.lower())
        if str(resume) != "auto":
            return RunFolder.open(resume)
        if self.run_dir is None:
            raise ConfigError("resume='auto' continues the run at run_dir=, and none is given; name the run folder")
        if (Path(self.run_dir) / "checkpoints").exists():
            return RunFolder.open(self.run_dir)
        return RunFolder.create(self.run_dir)

    def _describe(self, folder: RunFolder) -> None:
        """Leave in the folder what is needed to understand the run, and to load its model where that is possible."""
        plain = (str, int, float, bool, type(None))  # exactly these: YAML cannot say what a numpy number is
        own = {name: value for name, value in self.settings.items() if type(value) in plain}
        folder.write(CONFIG, self.config or yaml.safe_dump({"trainer": own}, sort_keys=False))
        folder.remove(RESULT)  # of the run that this one continues
        folder.write_json(
            MACHINE, {**inventory().facts(), "device": str(self.device), "precision": self.precision.name}
        )
        arguments = getattr(self.model, "arguments", None)
        if isinstance(arguments, dict):
            folder.write_json(MODEL, {"model": type(self.model).__name__, "arguments": arguments})

    def _conclude(self, folder: RunFolder, result: Result, evaluator: Evaluator | None) -> None:
        """Leave in the folder what came of the run."""
        judged = {} if evaluator is None else {
            "monitor": evaluator.monitor, "higher_is_better": evaluator.higher_is_better
        }  # fmt: skip
        outcome = {"steps": result.steps, "epochs": result.epochs, "seconds": round(result.seconds, 3)}
        try:
            if self.plan is not None:
                folder.write_json(PLAN, self.plan.as_json())
            folder.write_json(RESULT, {**outcome, "ended": result.ended, "metrics": result.metrics, **judged})
        except RunFolderError as error:  # the model is trained, and the caller has the result
            self.journal.warn(f"{error}; the run is over, and its result is not in its folder")

    def _show(self, folder: RunFolder) -> None:
        """Write the page of the run. It is a view of what is on disk already, so a failing one ends no run."""
        try:
            write_report(folder)
        except (BrimError, OSError, ValueError) as error:
            self.journal.warn(f"the page of this run could not be written: {error}")

    def _assemble(self) -> tuple[Feed, TrainingState, Evaluator | None]:
        """What a run reads, what it changes, and what judges it."""
        feed = as_feed(self.train_data)
        if batches_per_epoch(feed) == 0:
            raise DataError("train_data has no batch: it is shorter than batch_size, and drop_last is set")
        optimizer = make_optimizer(self.optimizer, self.model, self.lr)
        scheduler = make_scheduler(self.scheduler, optimizer, self._total_steps(feed))
        self.precision.tells_if_stepped = scheduler is not None
        evaluator = None if self.eval_data is None else self._evaluator(self.eval_data)
        if evaluator is None and (self.bounds.patience is not None or isinstance(scheduler, ReduceLROnPlateau)):
            raise ConfigError("patience= and ReduceLROnPlateau wait for evaluations, and there is no eval_data")
        return feed, TrainingState(self.model, optimizer, scheduler, self.precision, Progress()), evaluator

    def _prepare(
        self, folder: RunFolder, feed: Feed, state: TrainingState, evaluator: Evaluator | None, resumes: bool
    ) -> TrainingRun:
        """Everything one run needs, put together."""
        checkpoints = Checkpoints(folder.checkpoints, self.keep)
        if resumes:
            self._continue(checkpoints, state)
        bar = ProgressBar(self.journal.console, self._total_steps(feed))
        numbers = NumbersGuard(self.settings["on_nan"], folder.path, partial(self.journal.warn, kind="numbers"))
        prefetcher = DevicePrefetcher(self.device, feed.times if isinstance(feed, Loader) else None)
        self._settle(feed)
        step, eager = self._step(state)
        eager.leaves_bad_out = numbers.leaves_out
        run = TrainingRun(
            state=state,
            step=step,
            eager=eager,
            feed=feed,
            prefetcher=prefetcher,
            seed=self.seed,
            accumulation=self.accumulation,
            bounds=self.bounds,
            evaluator=evaluator,
            saver=Saver(
                checkpoints, partial(self.journal.say, kind="checkpoint"), partial(self.journal.warn, kind="checkpoint")
            ),
            numbers=numbers,
            log=StepLog(
                MetricsFile(folder), bar, state.optimizer, self.log_every, self.device,
                feed_times=prefetcher.times, heed=numbers.heed,
            ),
            journal=self.journal,
            callbacks=self.callbacks,
            owner=self,
        )  # fmt: skip
        numbers.batches_of = run.batches_of
        return run

    def _settle(self, feed: Feed) -> None:
        """Choose how the data is read. What can be kept on a GPU goes there when the forecast says what is left."""
        self._feed = feed
        if not isinstance(feed, Loader):
            if isinstance(feed, ReadyBatches):
                self.journal.say("data: ready batches, as they come", "data", path="ready batches", workers=0)
            return
        feed.report = lambda sentence: self.journal.say(sentence, "data")
        feed.compute_on(self.device)
        if self.device.type == "cuda" and self.micro_batch is not None:  # no forecast is made
            self._keep_on_device(torch.cuda.mem_get_info(self.device)[0] // 4)
        self.journal.say(feed.choice.sentence(), "data", path=feed.choice.path, workers=feed.choice.workers)

    def _keep_on_device(self, room: int) -> None:
        """Keep the training data on the GPU, if it consists of columns and there is room for it."""
        if isinstance(self._feed, Loader) and self._feed.place(self.device, room):
            choice = self._feed.choice
            self.journal.say(choice.sentence(), "data", path=choice.path, workers=0)

    def _total_steps(self, feed: Feed) -> int | None:
        if self.bounds.max_steps is not None:
            return self.bounds.max_steps
        batches = batches_per_epoch(feed)
        return None if batches is None else self.bounds.epochs * -(-batches // self.accumulation)

    def _continue(self, checkpoints: Checkpoints, state: TrainingState) -> None:
        saved = checkpoints.newest_whole(lambda sentence: self.journal.warn(sentence, "checkpoint"))
        if saved is None and checkpoints.all():
            raise RunFolderError(
                f"all checkpoints in {checkpoints.folder} are damaged; start anew with another run_dir"
            )
        if saved is None:
            self.journal.say("nothing to resume yet: starting from the beginning", "resume")
            return
        checkpoints.load(saved, state)
        progress = state.progress
        self.journal.say(
            f"resuming after step {progress.step:,} (epoch {progress.epoch + 1}, sample {progress.position:,})",
            "resume",
        )

    def _step(self, state: TrainingState) -> tuple[StepLike, EagerStep]:
        """The step with everything around it, and the plain one within.

        Around it is a trial of thread counts where the CPU computes and nobody has decided.
        """
        compute: LossOf = self._compute
        if self.compile:
            compute = torch.compile(compute, backend="inductor" if self.compile is True else self.compile)
        if self.micro_batch is not None and has_batch_norm(self.model):
            self.journal.warn(
                f"micro_batch={self.micro_batch} slices the batch of a model with BatchNorm: its statistics are those "
                "of each slice, so this is another training"
            )
        step = EagerStep(compute, state.optimizer, self.precision, self.micro_batch, self.clip_norm)
        sliceable, checkpointing = self.settings["sliceable"], self.settings["checkpointing"]
        guard = GuardedStep(step, self.model, partial(self._note_shortage, state), sliceable, checkpointing)
        self._watch = guard.watch
        found = state.progress.micro_batch
        if self.micro_batch is None and found is not None:  # the run that this one continues found it
            guard.step.micro_batch = found
        if self.device.type == "cuda" and self.micro_batch is None:
            return PlannedStep(guard, self.model, self.loss_fn, sliceable, self._note_plan), step
        if self.device.type != "cpu":
            return guard, step
        threads = state.progress.threads if self.threads == "auto" else int(self.threads)
        # A trial can end differently on another day, and threads change the rounding: not in a deterministic run.
        if threads is None and self.deterministic:
            threads = torch.get_num_threads()
        return with_threads(guard, threads, lambda choice, times: self._note_threads(state, choice, times)), step

    def _note_shortage(self, state: TrainingState, sentence: str, **facts: Any) -> None:
        """Memory ran out, or there is more of it again: say what is done, and keep the size that was found."""
        state.progress.micro_batch = facts.get("micro_batch", state.progress.micro_batch)
        self.journal.warn(sentence, "memory", **facts)

    def _note_plan(self, plan: Plan | None, trouble: str) -> None:
        """Say what the forecast says, before the first batch is computed."""
        if plan is None:
            self.journal.warn(trouble, "memory")
            self._keep_on_device(torch.cuda.mem_get_info(self.device)[0] // 4)
            return
        made = plan.forecast
        parts = ", ".join(f"{name} {show_bytes(size)}" for name, size in made.parts.items() if size >= 1 << 20)
        self.journal.say(
            f"memory forecast: {show_bytes(made.reserved)} of {show_bytes(plan.limit)} that can be used ({parts})",
            "memory",
            forecast=made.as_json(),
        )
        if plan.slices > 1:
            self.journal.say(plan.reasons[0], "memory", micro_batch=plan.micro_batch)
        self.plan = plan
        self._keep_on_device(plan.limit - made.reserved)

    def _note_memory(self) -> None:
        """What the run really took, beside the forecast."""
        if self.device.type != "cuda":
            return
        watch = self._watch
        watch.note_peak()
        allocated, reserved = watch.most_allocated, watch.most_reserved
        told = f", forecast {show_bytes(self.plan.forecast.reserved)}" if self.plan is not None else ""
        self.journal.say(
            f"peak memory: {show_bytes(allocated)} allocated, {show_bytes(reserved)} reserved{told}",
            "memory",
            allocated=allocated,
            reserved=reserved,
        )

    def _note_threads(self, state: TrainingState, choice: int, times: dict[int, float]) -> None:
        state.progress.threads = choice
        measured = ", ".join(f"{threads}: {seconds * 1e3:.2f} ms" for threads, seconds in times.items())
        self.journal.say(f"computing with {choice} CPU threads (a step with {measured})", "threads", threads=choice)

    def _train(self, run: TrainingRun) -> None:
        self._run = run
        self.model.train()
        try:
            self.callbacks.call("on_fit_start", self)
            with run.interrupt:
                run.train()
        except OptimizerRanOut:
            raise
        except CannotFit:  # no step was left half done, so what was reached can be kept
            run.saver.wait()
            run.save()
            raise
        finally:
            run.saver.wait()
            run.log.close()
        self.callbacks.call("on_fit_end", self)
        self._note_memory()
        if run.interrupt.requested:
            newest = next(reversed(run.checkpoints.all()), None)
            where = f"checkpoint: {newest}" if newest is not None else "no checkpoint could be written"
            after = f"after step {run.state.progress.step:,}; {where}"
            if run.interrupt.by == "Ctrl-C":
                raise Interrupted(f"stopped by Ctrl-C {after}")
            raise Preempted(f"stopped by {run.interrupt.by} {after}; go on with resume")
        if run.stop_reason is not None:
            self.journal.say(f"stopped: {run.stop_reason}", "stopped")

    def _final_metrics(self, run: TrainingRun) -> dict[str, float]:
        progress = run.state.progress
        if run.checkpoints.load_best(self.model) and progress.best_step != progress.step:
            self.journal.say(f"back to the best weights, those of step {progress.best_step:,}", "best")
        return self.evaluate() if self.test_data is not None else progress.best_metrics


def _check_model_path(model_path: str | Path | None) -> None:
    """Refuse a place for the trained model before training, not after it."""
    if model_path is not None and Path(model_path).suffix not in (".pt", ".pth", ".safetensors"):
        raise ConfigError(f"model_path={str(model_path)!r} must end in .pth, .pt or .safetensors")
    if model_path is not None and Path(model_path).is_dir():
        raise ConfigError(f"model_path={str(model_path)!r} is a folder; name a file in it")
