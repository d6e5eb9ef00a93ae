"""The trainer: settings in, a trained model and a run folder out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from brim.arguments.attributes import check_assignment, missing_attribute
from brim.arguments.known import explained_call, known_arguments
from brim.engine.captured import CaptureReport
from brim.engine.checkpoints.weights import check_model_path
from brim.engine.components.loss import LossFunction
from brim.engine.components.optimizer import OptimizerLike
from brim.engine.components.schedule import SchedulerLike
from brim.engine.components.settings import TrainerSettings
from brim.engine.control.bounds import Bounds
from brim.engine.control.callbacks import Callback, Callbacks
from brim.engine.control.dry_run import dry_settings
from brim.engine.control.hook_names import check_callbacks
from brim.engine.control.run_schedule import RunSchedule
from brim.engine.distributed.model_broadcast import broadcast_model
from brim.engine.evaluation.evaluation import detach_ranks, evaluate_model
from brim.engine.evaluation.evaluation_sets import drop_graphs
from brim.engine.evaluation.output_choice import OutputChoice
from brim.engine.evaluation.predictions import predict
from brim.engine.mistakes.fit_arguments import check_fit_arguments, check_no_run_goes_on, check_reason
from brim.engine.mistakes.model_kind import check_model, check_weights
from brim.engine.mistakes.torch_errors import explained_errors
from brim.engine.numbers.pass_notes import Number, kept, numbers_of
from brim.engine.run.assembly import Assembly
from brim.engine.run.evaluators import Evaluators
from brim.engine.run.fit import Fit
from brim.engine.run.step_choice import StepChoice
from brim.engine.run.training_run import TrainingRun
from brim.engine.run.training_setup import training_setup
from brim.engine.run_folder.result import Result
from brim.errors import ConfigError
from brim.logits.chunked_head import check_chunked
from brim.model_blocks import BlockChoice, chosen_blocks
from brim.record.run_folder import in_home

if TYPE_CHECKING:
    from brim.memory import Plan

DATA = ("train_data", "eval_data")  # which a run reads as they were when it began


class Trainer:
    """Trains a model, on whatever hardware is there, as a plain loop over the same batches would.

    The batch size of ``train_data`` times ``gradient_accumulation_steps`` is the optimisation batch, and nothing else
    that brim chooses changes it.

    Args:
        model: any module. With ``calculate_loss(batch)``, or a ``transformers`` model whose batches hold labels, it
            needs no ``loss_fn``.
        train_data: a :class:`brim.Loader`, a torch DataLoader or Dataset, ``(X, y)`` of tensors, arrays, DataFrames or
            lists of numbers, a list of ready batches, or any iterable of batches.
        eval_data: judged after epochs or steps (``eval_every``): batches, for their mean loss and ``metrics``, an
            evaluator, or a dict of several by name.
        test_data: judged once, with the best weights, for the result.
        loss_fn: a criterion or ``function(prediction, target)`` for (inputs, target) batches, or
            ``function(model, batch)``; it returns the mean loss, or the second form ``brim.Loss(total, count)``. A
            :class:`brim.TwoPass` makes losses that compare the samples of a batch exact in micro-batches.
        optimizer: a name of torch's (``"AdamW"``), a mapping with a name, its arguments and rules for groups
            (``no_decay``, ``lr_of``, ``layer_decay``), a function of the parameters, or an optimizer.
        scheduler: ``"constant"``, ``"linear"``, ``"cosine"``, a :class:`brim.Schedule`, a function of the optimizer, or
            a scheduler of torch's; what it counts is said by ``scheduler_every``.
        lr: the learning rate, where the optimizer is made here.
        epochs: passes over the training data.
        max_steps: optimizer steps, instead of ``epochs``.
        clip_norm: the largest norm that a gradient may have.
        seed: of weights made later, of the order of samples, of dropout.
        deterministic: torch's deterministic algorithms, and no choice by timing.
        device: ``"cuda"`` (the CPU, with a warning, where there is none), ``"cuda:1"`` or 1, ``"cpu"``, ``"mps"``, or
            ``"auto"`` for the best there is.
        use_multi_gpu: whether one process may compute on several GPUs.
        strategy: ``"auto"``, ``"single"``, ``"dp"`` (copies in one process), ``"ddp"`` (a replica on each rank) or
            ``"fsdp"`` (the model sharded over the ranks).
        micro_batch: samples that go through the model at once; ``"auto"`` for the whole batch, or less where it does
            not fit.
        gradient_accumulation_steps: batches whose gradients are added up before an optimizer step.
        precision: ``"32"`` (torch's own TF32 switches stand), ``"32-ieee"`` (no TF32), ``"tf32"``, ``"bf16-mixed"`` or
            ``"16-mixed"``; ``"auto"``: bf16 or fp16, whichever the GPU has, with TF32 for the rest; fp32 on a CPU.
            ``"bf16-true"`` keeps weights, gradients and optimizer state in bfloat16, as ``model.bfloat16()`` does.
        capture: whether steps become CUDA graphs: ``"auto"`` where that pays, ``"off"``, or ``"require"`` to try in any
            case, and to refuse to train where they cannot; ``"padded"`` pads batches that are padded already on to a
            few lengths, which changes which numbers dropout draws.
        compile: ``torch.compile`` for the loss: True, ``"auto"`` to decide by measuring, a mode or a backend of torch's
            by name (``"max-autotune"``), or a mapping of ``mode``, ``backend``, ``random`` and ``per``.
        threads: of the CPU; ``"auto"`` tries several in the first steps, ``"adaptive"`` again every few hundred.
        sliceable: True if parts of a batch may be computed apart, False if they may not; None to find out by gradients.
        checkpointing: activation checkpointing of the model's blocks: all (True), none (False), the first so many (4),
            such a share (0.5), modules by name (``["encoder.layer.0"]``); None or ``"auto"`` where memory asks for it.
            Only while ``fit`` lasts: afterwards, however it ends, the model computes as it did before.
        on_nan: what a loss that is not finite does: ``"stop"`` the run, ``"skip"`` the step, or ``"rewind"`` to the
            last checkpoint.
        scale_lr: ``"linear"`` or ``"sqrt"`` in the number of ranks, or of GPUs in one process; None leaves ``lr``.
        eval_every: epochs between evaluations, or ``"500 steps"``.
        patience: evaluations in a row without a better one after which the run ends.
        log_every: optimizer steps between two lines of ``metrics.jsonl``.
        checkpoint_every: optimizer steps between checkpoints; None for one an epoch.
        keep: how many checkpoints are kept beside the best.
        run_dir: the run folder; None for a new one under ``runs/``.
        callbacks: :class:`brim.Callback` objects.
        accumulate_grad_batches: another name of ``gradient_accumulation_steps``.
        scheduler_every: what a schedule of torch's counts: ``"step"`` or ``"epoch"``; None for what its kind
            is written in.
        keep_best: the weights of how many of the best evaluations are kept in the run folder.
        restore_best: whether ``fit`` leaves the model with its best weights; False for the last ones.
        limit_train_batches: batches of an epoch, at most; another order brings others each epoch.
        limit_eval_batches: batches of an evaluation, at most.
        overfit_batches: train on the first so many batches alone, the same ones in every epoch.
        fast_dev_run: one batch of everything, to see whether it runs; nothing is written, and the model stays as it is.
        ema: the decay of a moving average of the weights, which is evaluated, kept as the best, and left by ``fit``.
        tier: ready-made settings by the memory of a GPU: ``"large"`` (batches of 2,048, cached encodings, 8 GPUs at
            most), ``"medium"`` (1,024, cached, 4) or ``"small"`` (512, not cached, 2).
        metrics: what evaluations compute beside the mean loss: names (``"accuracy"``), functions of (outputs, batch) by
            name, objects of torchmetrics; one, a list or a dict of them.
        monitor: the metric that decides what is best, by its name; None for the evaluation data's own (``"loss"``).
        mode: ``"max"`` or ``"min"``, the direction in which ``monitor`` gets better; None to tell by its name.
        loggers: where numbers go beside ``metrics.jsonl``: ``"tensorboard"``, ``"csv"``, ``"wandb"``,
            ``"mlflow"``, objects with ``write(step, epoch, numbers)`` and ``close()``, or a list; None for TensorBoard
            where it is installed.
        forecast: of the memory of the first batch, on a GPU: ``"fresh"``, or ``"auto"`` for what an earlier run with
            the same model, batch and versions remembered of it.
        logits: ``"chunked"`` for the last layer of transformers' language models and its loss in chunks of tokens,
            which takes less memory; ``"auto"`` where that can be; ``"whole"`` as the model computes them.
        fit: ``"auto"``, on a GPU: a batch that does not fit is trained in the fastest way that does, by the forecast:
            micro-batches, some blocks recomputed, logits in chunks. None: micro-batches first, blocks as a last resort.
        memory_format: ``"channels_last"`` for weights of convolutions, which lie so from ``fit`` on, as after
            ``model.to(memory_format=torch.channels_last)``; ``"preserve"`` leaves them as they lie.

    Raises:
        ConfigError: for the first setting that cannot be used, before anything is written.

    >>> x = torch.randn(64, 3)
    >>> data = [(x, x.sum(1, keepdim=True))]
    >>> trainer = Trainer(nn.Linear(3, 1), data, loss_fn=nn.MSELoss(), device="cpu", epochs=2)
    >>> trainer.fit().steps  # doctest: +SKIP
    2
    """

    @known_arguments
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
        device: str | int | torch.device = "cuda",
        use_multi_gpu: bool = True,
        strategy: str = "auto",
        micro_batch: int | str = "auto",
        gradient_accumulation_steps: int = 1,
        precision: str | int = "32",
        capture: str = "auto",
        compile: bool | str | dict[str, str] = False,
        threads: int | str = "auto",
        sliceable: bool | None = None,
        checkpointing: BlockChoice = None,
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
        scheduler_every: str | None = None,
        keep_best: int = 1,
        restore_best: bool = True,
        limit_train_batches: int | None = None,
        limit_eval_batches: int | None = None,
        overfit_batches: int | None = None,
        fast_dev_run: bool = False,
        ema: float | None = None,
        tier: str | None = None,
        metrics: Any = None,
        monitor: str | None = None,
        mode: str | None = None,
        loggers: Any = None,
        forecast: str = "fresh",
        logits: str = "whole",
        fit: str | None = None,
        memory_format: str = "preserve",
    ) -> None:
        check_model(model)
        check_weights(model)
        self.settings = TrainerSettings(
            optimizer=optimizer, scheduler=scheduler, lr=lr, epochs=epochs, max_steps=max_steps, clip_norm=clip_norm,
            seed=seed, deterministic=deterministic, device=device, use_multi_gpu=use_multi_gpu, strategy=strategy,
            micro_batch=micro_batch, gradient_accumulation_steps=gradient_accumulation_steps, precision=precision,
            capture=capture, compile=compile, threads=threads, sliceable=sliceable, checkpointing=checkpointing,
            on_nan=on_nan, scale_lr=scale_lr, eval_every=eval_every, patience=patience, log_every=log_every,
            checkpoint_every=checkpoint_every, keep=keep, run_dir=run_dir,
            accumulate_grad_batches=accumulate_grad_batches, scheduler_every=scheduler_every, keep_best=keep_best,
            restore_best=restore_best, limit_train_batches=limit_train_batches, limit_eval_batches=limit_eval_batches,
            overfit_batches=overfit_batches, fast_dev_run=fast_dev_run, ema=ema, metrics=metrics, monitor=monitor,
            mode=mode, tier=tier, loggers=loggers, forecast=forecast, logits=logits, fit=fit,
            memory_format=memory_format,
        )  # fmt: skip
        self.settings.check()
        check_chunked(model, logits)
        chosen_blocks(model, checkpointing)
        self.settings = dry_settings(self.settings)
        self.callbacks = Callbacks(check_callbacks(callbacks))
        setup = training_setup(model, loss_fn, train_data, self.settings)
        self.model, self.loss_fn, self.train_data = setup.model, setup.loss_fn, setup.train_data
        self.eval_data, self.test_data = eval_data, test_data
        self.strategy, self.device, self.devices = setup.strategy, setup.device, setup.devices
        self.precision, self.ranks, self.journal = setup.precision, setup.ranks, setup.journal
        self.seed, self.deterministic, self.run_dir = seed, deterministic, run_dir
        self.accumulation, self.bounds = self.settings.accumulation, Bounds.of(self.settings)
        self._setup = setup
        self._evaluators = Evaluators.of(StepChoice(setup), eval_data, test_data)
        self._schedule = RunSchedule(scheduler, self.settings, self.journal)
        self.config: str | None = None  # what config.yaml of the run folder holds; by default these settings
        self._run: TrainingRun | None = None

    @known_arguments
    def fit(
        self, save_model: bool = False, model_path: str | Path | None = None, resume: str | Path | None = None
    ) -> Result:
        """Train, and leave the model with its best weights by ``eval_data`` (its last ones where there is none).

        Args:
            save_model: whether these weights are written to ``model_path`` as well.
            model_path: ``.pt`` or ``.pth`` for a plain state_dict, ``.safetensors`` for safetensors; None for a file in
                the run folder.
            resume: the folder of a run to continue, or ``"auto"`` for the one at ``run_dir`` if it exists.

        Returns:
            Where the run is, how far it came, and its metrics.

        Raises:
            BrimError: one sentence that says what is wrong and what to do; its class says of which kind.
        """
        try:
            check_fit_arguments(save_model, model_path, resume)
            model_path, resume = in_home(model_path), in_home(resume)
            if self.settings.fast_dev_run and resume is not None:
                raise ConfigError("fast_dev_run=True leaves no run behind, so it cannot resume one; leave resume out")
            check_no_run_goes_on(self._run is not None and self._run.stopping.is_live)
            if model_path is not None and not save_model:
                self.journal.warn(f"model_path={str(model_path)!r} has no effect without save_model=True", "save")
            if save_model:
                check_model_path(model_path, self.ranks.is_first)
            assembly = Assembly(self._evaluators, self._schedule, self.bounds, self.callbacks, len(self.devices))
            fit = Fit(self, assembly, self._begin)
            if self.settings.fast_dev_run:
                return fit.dry_run()
            return fit.run(in_home(self.run_dir), resume, save_model, model_path)
        except Exception as error:
            self.ranks.post_failure(error)
            raise

    def _begin(self, run: TrainingRun) -> None:
        self._run = run

    @known_arguments
    @explained_errors
    def evaluate(self, data: Any = None, metrics: Any = None) -> dict[str, float]:
        """The metrics of ``data`` (by default the test data): its own, or the mean loss and ``metrics``.

        Args:
            data: as ``eval_data``; None for the test data, or the evaluation data where there is none.
            metrics: instead of the trainer's.
        """
        chosen = next((d for d in (data, self.test_data, self.eval_data) if d is not None), None)
        if chosen is None:
            raise ConfigError("there is nothing to evaluate on; pass data, or give the trainer test_data or eval_data")
        sharded = None if self._run is None else self._run.sharded
        model = self.precision.placed(self.model, self.loss_fn) if sharded is None else sharded.module
        with self._evaluation_scope():
            evaluator = self._evaluators.evaluator(chosen, sharded, metrics, comes_again=False)
            try:
                return evaluate_model(evaluator, model)
            finally:
                drop_graphs(evaluator)
                if self._run is None or not self._run.stopping.is_live:  # else the run's own evaluations share it too
                    detach_ranks(chosen)

    @known_arguments
    @explained_errors
    def predict(self, data: Any, output: OutputChoice = None) -> Any:
        """The model's outputs for ``data`` in its order, in host memory; all GPUs or ranks compute (all ranks call it).

        Args:
            data: inputs alone, or batches as for training.
            output: what of the model's output is kept: a key or attribute, a number, or a function of (outputs, batch);
                None for all, and for the logits of transformers' models.

        Returns:
            A tensor, or what the model returns with its tensors joined; a list with one entry for each sample where
            their shapes differ.
        """
        if self._run is not None and self._run.sharded is not None:
            raise ConfigError("predict computes with the whole model, and it is sharded until fit ends; call it then")
        tell = partial(self.journal.warn, kind="predict")
        with self._evaluation_scope():
            broadcast_model(self.precision.placed(self.model, self.loss_fn), self.ranks)
            return predict(self.model, data, self.loss_fn, self.precision, output, self.ranks, self.devices, tell)

    @contextmanager
    def _evaluation_scope(self) -> Iterator[None]:
        """While a run goes on a callback sees what the run's own evaluations see: averaged weights with ``ema=``."""
        scope = nullcontext() if self._run is None else self._run.evaluations.evaluation_scope()
        with self.precision.products(), scope:
            yield

    @property
    def optimizer(self) -> Any:
        """The optimizer of the run, for callbacks; before ``fit`` what was handed over."""
        return self.settings.optimizer if self._run is None else self._run.state.optimizer

    @property
    def scheduler(self) -> Any:
        """The schedule of the run, for callbacks; before ``fit`` what was handed over."""
        return self.settings.scheduler if self._run is None else self._run.state.scheduler

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizer of the run, for callbacks: its groups have the learning rates; empty before ``fit``."""
        return [] if self._run is None else [self._run.state.optimizer]

    @property
    def plan(self) -> Plan | None:
        """The memory plan that was made from the first batch, on a GPU."""
        return None if self._run is None else self._run.findings.plan

    @explained_call
    def log(self, name: str | Mapping[str, Number], value: Number | None = None) -> None:
        """Write a number down with the step log, from a loss function or a callback; it stays on the device until then.

        Args:
            name: in ``metrics.jsonl``; or a dict of numbers by name, without ``value``.
            value: a number or a tensor with one, the mean over what the loss is a mean over; or
                ``brim.Loss(total, count)``. Averaged over micro-batches, ranks and the steps of a line.
        """
        for one, number in numbers_of(name, value).items():
            self._setup.notes.log(one, number)
            if self._run is not None and self._run.log.logged.is_between_steps:
                self._run.log.logged.add(one, kept(one, number))

    @explained_call
    def stop(self, reason: str) -> None:
        """End the run after the current step; for callbacks."""
        check_reason(reason)
        if self._run is None or not self._run.stopping.is_live:
            self.journal.warn(f"stop({reason!r}) has no effect: no run goes on; call it in a callback", kind="stop")
        else:
            self._run.stopping.reason = reason

    @property
    def ema_model(self) -> nn.Module | None:
        """The model with the averaged weights of now, with ``ema=``: a copy beside the one that is trained."""
        return None if self._run is None or self._run.state.ema is None else self._run.state.ema.module

    def __setattr__(self, name: str, value: Any) -> None:
        if "_run" in vars(self):  # it is made
            check_assignment(self, name, may=("run_dir",))
            if name in DATA and self._run is not None and self._run.stopping.is_live:
                raise ConfigError(
                    f"setting {name} has no effect while fit goes on, which has begun with another; change the data "
                    "set itself (its samples, a transform, set_epoch), or call fit once for each"
                )
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # a type checker knows by itself what there is not

        def __getattr__(self, name):
            if hasattr(type(self), name):  # a property that has failed: what it says itself
                return object.__getattribute__(self, name)
            raise missing_attribute(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ConfigError(
            "a Trainer cannot be copied or pickled: it holds the files and locks of its run; copy the model "
            "(copy.deepcopy(trainer.model)) and make a new Trainer for it"
        )

    @property
    def captured(self) -> CaptureReport:
        """Whether steps are replayed from a captured graph, and why not."""
        if self._run is not None and self._run.captured is not None:
            return self._run.captured.report
        made = 0 if self._run is None else self._run.state.progress.step - self._run.first_step
        return CaptureReport(reason=self._evaluators.choice.why_not_captured, eager=made)


def run_of(trainer: Trainer) -> TrainingRun | None:
    """The run that goes on, or the last one, for what is built on a trainer; None before the first."""
    return trainer._run


def run_now(trainer: Trainer) -> TrainingRun:
    """The run that goes on, in a callback; afterwards the last one."""
    run = trainer._run
    assert run is not None
    return run
