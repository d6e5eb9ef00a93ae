"""Losses as sums and counts, so that parts of a batch add up to the batch."""

import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from brim.arguments.choices import shorten
from brim.data import Batch
from brim.data.batches.batch import is_container
from brim.engine.calling.criterion import Criterion, is_criterion
from brim.engine.calling.loss_form import BOTH_FORMS, LossForm, form_of
from brim.engine.calling.loss_form import LossFunction as LossFunction
from brim.engine.calling.model_call import arguments_of, call_model, is_spread, named_inputs
from brim.engine.components.loss_count import SAMPLES, CountRule, Kind, kind_of
from brim.engine.components.two_pass import TwoPass
from brim.engine.mistakes.described import described
from brim.engine.mistakes.named_batches import explained
from brim.engine.numbers.pass_notes import PassNotes
from brim.engine.numbers.summed_loss import Loss as Loss  # which most know from here
from brim.engine.numbers.summed_loss import counted
from brim.errors import ConfigError, a_type

LossOf = Callable[[Batch], Tensor | Loss]


class CountedLoss:
    """The loss of a batch, and what it is a mean over once that is known.

    Called, it gives what adds up: a bare mean over labels comes as :class:`Loss` with their count. :attr:`plain` gives
    what the user's own loop would have; :attr:`run` is the same, perhaps compiled.
    """

    def __init__(
        self, model: nn.Module | None, loss_fn: LossFunction | None, plain: LossOf, notes: PassNotes | None = None
    ) -> None:
        self.model = model
        self.loss_fn = loss_fn
        self.plain = plain
        self.notes = notes or PassNotes()
        self.run = plain
        # By whether the model trains or evaluates, and by the kind of batch (None: all others).
        self._rules: dict[tuple[bool, Kind | None], CountRule | None] = {}

    def __call__(self, batch: Batch) -> Tensor | Loss:
        rule = self.rule_for(batch) if self._rules else None
        count = None if rule is None else rule.count(batch)  # before the call, which may take things out of the batch
        if rule is not None and rule.skips_empty and not count:
            return Loss(torch.zeros((), device=count.device if isinstance(count, Tensor) else None), 0)
        loss = self.run(batch)
        return loss if count is None else counted(loss, count)

    def uncompiled(self, batch: Batch) -> Tensor | Loss:
        """The same without gradients, and never compiled: the model is called, and hooks on it too."""
        count = self.count_of(batch) if self._rules else None
        loss = self.plain(batch)
        return loss if count is None else counted(loss, count)

    @property
    def two_pass(self) -> TwoPass | None:
        """The loss that may be computed in two passes, where it is one."""
        return self.loss_fn if isinstance(self.loss_fn, TwoPass) else None

    def count_of(self, batch: Batch) -> Tensor | float | None:
        """What a mean over this batch is a mean over, where that is known not to be samples."""
        rule = self.rule_for(batch)
        return None if rule is None else rule.count(batch)

    def rule_for(self, batch: Batch) -> CountRule | None:
        """By what a mean over such a batch is weighted; None for samples, or where nothing is known."""
        mode = self._is_training()
        return self._rules.get((mode, kind_of(batch)), self._rules.get((mode, None)))

    @property
    def rules(self) -> list[CountRule | None]:
        """All that means are weighted by, in the mode that the model is in."""
        return [rule for (mode, _), rule in self._rules.items() if mode is self._is_training()]

    def is_judged(self, batch: Batch) -> bool:
        """Whether it is known what it counts for such a batch, in the mode that the model is in."""
        mode = self._is_training()
        return (mode, kind_of(batch)) in self._rules or (mode, None) in self._rules

    def count_by(self, rule: CountRule, kind: Kind | None = None) -> None:
        """Weigh means by this count from now on, in the mode that the model is in, for one kind of batch or all."""
        self._rules[self._is_training(), kind] = None if rule == SAMPLES else rule

    def _is_training(self) -> bool:
        return self.model is None or self.model.training


def counted_in(compute: Any) -> CountedLoss | None:
    """What knows of the count: the loss itself, or the one that is spread over several devices."""
    inner = getattr(compute, "counted", compute)
    return inner if isinstance(inner, CountedLoss) else None


def loss_of(model: nn.Module, loss_fn: LossFunction | None, notes: PassNotes | None = None) -> CountedLoss:
    """The loss of a batch, from whichever of the forms the user chose.

    The model's own ``calculate_loss(batch)``; the ``loss`` in what the model returns for a dict batch with labels, as
    transformers' models do; a criterion of torch's such as ``nn.MSELoss()`` or ``torch.nn.functional.mse_loss``, for
    batches of (inputs, target), or a function that can be seen to be one; or any ``function(model, batch)``. ``notes``
    take what it says beside the loss.
    """
    notes = notes or PassNotes()
    if loss_fn is not None:
        if not callable(loss_fn) or isinstance(loss_fn, type):
            raise ConfigError(f"loss_fn={_shown(loss_fn)} cannot be called; {BOTH_FORMS}, or nn.MSELoss()")
        made = Criterion(model, loss_fn) if is_criterion(loss_fn) else _OfFunction(model, loss_fn, notes)
        return CountedLoss(model, loss_fn, made, notes)
    if getattr(model, "calculate_loss", None) is not None:
        _check_takes_batch(model)
        return CountedLoss(model, None, _OfMethod(model, notes), notes)
    if returns_loss(model):
        return CountedLoss(model, None, _OfOutput(model, notes), notes)
    if callable(getattr(model, "training_step", None)):
        raise ConfigError(
            f"{type(model).__name__} has a training_step, and no loss_fn was given; train a LightningModule with "
            "brim.integrations.lightning.train(module, loader, epochs=...), or pass loss_fn=lambda model, batch: "
            "model.training_step(batch, 0), and optimizer= and scheduler= for what configure_optimizers returns"
        )
    raise ConfigError(
        f"{type(model).__name__} has no calculate_loss(batch) and no loss_fn was given; "
        "pass loss_fn=nn.MSELoss() for (inputs, target) batches, or loss_fn=lambda model, batch: ..."
    )


def _check_takes_batch(model: nn.Module) -> None:
    try:
        # What stands there itself: FSDP wraps a bound method in a function, which claims to take one argument less.
        takes = inspect.signature(model.calculate_loss, follow_wrapped=False)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # native or scripted code has none
        return
    try:
        takes.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"calculate_loss of {type(model).__name__} is called with the batch ({error}); write "
            "def calculate_loss(self, batch)"
        ) from None


def _shown(loss_fn: Any) -> str:
    return f"{loss_fn.__name__} is a class, which" if isinstance(loss_fn, type) else shorten(loss_fn)


def returns_loss(model: nn.Module) -> bool:
    """Whether the model computes its loss by itself where it is given labels, as transformers' models do."""
    taken = inspect.signature(model.forward).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values())
    return "labels" in taken or "return_loss" in taken or (takes_any and hasattr(model, "config"))


class _OfFunction:
    """``function(model, batch)``; an output that has a ``loss`` will do."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction, notes: PassNotes) -> None:
        self.model = model
        self.loss_fn = loss_fn
        self.notes = notes
        self.is_unclear = form_of(loss_fn) is LossForm.UNCLEAR

    def __call__(self, batch: Batch) -> Tensor | Loss:
        try:
            loss: Tensor | Loss = loss_in(self.loss_fn(self.model, batch), self.notes)
        except (TypeError, AttributeError) as error:
            if isinstance(batch, Mapping) and f"'{type(batch).__name__}' object has no attribute" in str(error):
                raise ConfigError(
                    f"the batch is {described(batch)}: write batch['name'] for one of these, model(**batch) for a "
                    f"model that takes them by name ({error})"
                ) from error
            if not self.is_unclear:
                raise
            told = (str(error).splitlines() or [""])[0][:120]
            raise ConfigError(
                f"loss_fn failed as loss_fn(model, batch): {told}; {BOTH_FORMS}, by these names"
            ) from error
        return loss


class _OfMethod:
    """The model's own ``calculate_loss(batch)``, the one of now: it may be replaced."""

    def __init__(self, model: nn.Module, notes: PassNotes) -> None:
        self.model: Any = model
        self.notes = notes

    def __call__(self, batch: Batch) -> Tensor | Loss:
        loss: Tensor | Loss = loss_in(self.model.calculate_loss(batch), self.notes)
        return loss


class _OfOutput:
    """The loss that a model returns for a batch by keywords."""

    def __init__(self, model: nn.Module, notes: PassNotes) -> None:
        self.model = model
        self.notes = notes

    def __call__(self, batch: Batch) -> Tensor | Loss:
        if not isinstance(batch, Mapping):
            raise ConfigError(
                f"{type(self.model).__name__} computes its loss from batches that are dicts with 'labels', and this "
                f"one is {a_type(batch)}; let the data give dicts, or pass loss_fn=lambda model, batch: ..."
            )
        try:
            output = self.model(**batch)
        except (AttributeError, TypeError, ValueError) as error:
            told = explained(self.model, batch, error)
            if told is None:
                raise
            raise told from error
        if getattr(output, "loss", None) is None and hasattr(output, "loss"):
            raise ConfigError(
                f"{type(self.model).__name__} returns no loss: its batches need 'labels', and this one is "
                f"{described(batch)}"
            )
        loss: Tensor | Loss = loss_in(output, self.notes)
        if not isinstance(loss, Tensor | Loss):
            raise ConfigError(
                f"{type(self.model).__name__} computes no loss: it returns {described(output)}; take a model with a "
                "head for the task (AutoModelForSequenceClassification, ...), or pass loss_fn=lambda model, batch: ..."
            )
        return loss


def loss_in(output: Any, notes: PassNotes) -> Any:
    """The loss itself, of an output such as transformers' that holds it; the notes take what else is there."""
    if isinstance(output, Tensor | Loss):
        return output
    if isinstance(output, Mapping) and "loss" in output:
        notes.take_extras(output)
        return output["loss"]
    if hasattr(output, "loss") or (isinstance(output, Mapping) and hasattr(output, "logits")):
        loss = getattr(output, "loss", None)
        if loss is None:
            raise ConfigError(f"the {type(output).__name__} holds no loss: the batch needs 'labels'")
        return loss
    return output


def as_sum(loss: Tensor | Loss, samples: int) -> Loss:
    """Any accepted return value as a sum; a bare tensor is the mean over ``samples``."""
    if isinstance(loss, Loss):
        if not isinstance(loss.total, Tensor) or loss.total.numel() != 1:
            got = f"of shape {tuple(loss.total.shape)}" if isinstance(loss.total, Tensor) else f"{loss.total!r}"
            raise ConfigError(f"brim.Loss(total, count) takes the summed loss, a tensor with one number, and got {got}")
        if not _is_count(loss.count):
            raise ConfigError(
                "brim.Loss(total, count) takes what was summed over as a number of at least 0, or a tensor with one, "
                f"and got {shorten(loss.count)}"
            )
        return loss
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        shape = f"of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"({type(loss).__name__})"
        shape += " without 'loss'" if isinstance(loss, Mapping) else ""
        raise ConfigError(
            f"the loss must be a scalar tensor, the mean over the batch, or brim.Loss(total, count); got one {shape}"
        )
    return Loss(loss.float() * samples, samples)  # half precision would overflow at 65,504


def _is_count(count: Any) -> bool:
    if isinstance(count, Tensor):
        return count.numel() == 1
    return isinstance(count, Real) and float(count) >= 0


def predict_batch(model: nn.Module, batch: Batch, loss_fn: LossFunction | None) -> Any:
    """The model's output for a batch: its own ``predict(batch)``, or a call with what of the batch are its inputs.

    Of a loss in two passes, what it encodes.
    """
    own = getattr(model, "predict", None)
    if own is not None:
        return own(batch)
    if isinstance(loss_fn, TwoPass):
        return loss_fn.encode(model, batch)
    if isinstance(batch, Mapping):
        inputs = named_inputs(model, batch)
        try:
            return model(batch) if inputs is None else model(**inputs)
        except (AttributeError, TypeError, ValueError) as error:
            told = explained(model, batch, error)
            if told is None:
                raise
            raise told from error
    if not isinstance(batch, tuple | list):
        return call_model(model, batch)
    if is_spread(model, batch) and len(batch) == len(arguments_of(model).required) and not is_container(batch[0]):
        return model(*batch)
    if len(batch) == 1 or (loss_fn is not None and is_criterion(loss_fn)):
        return call_model(model, batch[0])
    raise ConfigError(
        f"{type(model).__name__} has no predict(batch), and which of a batch's {len(batch)} parts it should see is "
        "unknown; give it one, or hand over the inputs alone"
    )
