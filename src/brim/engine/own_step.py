"""The guarded step inside a user's own loop."""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.arguments.attributes import UnknownAttribute
from brim.arguments.known import known_arguments
from brim.data import Batch, move_data_to_device
from brim.engine.calling.criterion import is_criterion
from brim.engine.captured import CapturedStep, CaptureReport, EagerPace, Padding, Prospects
from brim.engine.components.loss import LossFunction, loss_of
from brim.engine.components.loss_parameters import check_loss_parameters
from brim.engine.components.optimizer import holds_parameters, refuse_closures
from brim.engine.components.precision import Precision
from brim.engine.components.settings import CAPTURES, check_choice, check_positive
from brim.engine.mistakes.model_kind import check_model, check_weights
from brim.engine.mistakes.torch_errors import explained_errors
from brim.engine.shares.device_events import CudaEvents
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.errors import ConfigError, DataError, a_type, to_stderr
from brim.model_blocks import BlockChoice
from brim.sizes import check_whole

CALL = "loss = step(batch) clears the gradients, computes them, clips and steps; leave the others out"
IN_THE_CALL = {"backward": CALL, "zero_grad": CALL, "step": CALL, "train": "modes are the model's: model.train()"}


class StepsElsewhere:
    """Whether an optimizer is stepped by others than brim.Step, told by the state that it keeps for a parameter: nobody
    but its step writes to that. Optimizers without state tell nothing. One for all steps of an optimizer, kept with it.
    """

    KEY = "_stepped_by_brim"

    def __init__(self) -> None:
        self._marks: list[tuple[weakref.ref[Tensor], int]] = []

    @classmethod
    def of(cls, optimizer: Optimizer) -> "StepsElsewhere":
        found: StepsElsewhere = vars(optimizer).setdefault(cls.KEY, cls())
        return found

    def note(self, optimizer: Optimizer) -> None:
        """How far the state is now."""
        state: dict[str, Any] = next(iter(optimizer.state.values()), {})
        tensors = [value for value in state.values() if isinstance(value, Tensor)]
        self._marks = [(weakref.ref(tensor), tensor._version) for tensor in tensors]

    @property
    def has_moved(self) -> bool:
        """Whether it has moved since; one that was loaded meanwhile is another."""
        return any((tensor := mark()) is not None and tensor._version != version for mark, version in self._marks)


class Step:
    """One optimizer step that survives running out of memory, for a loop of your own.

    Calling it with a batch (or several, whose gradients are those of all of them together) clears the gradients,
    computes, clips and steps, and returns the mean loss on the device.

    Args:
        model: where it shall be computed.
        optimizer: of the model's parameters, made by you.
        loss_fn: as :class:`brim.Trainer` takes it: None for a model with ``calculate_loss(batch)``, a criterion for
            (inputs, target) batches, or any ``function(model, batch)``.
        precision: ``"32"``, ``"tf32"``, ``"bf16-mixed"``, ``"16-mixed"``, or ``"bf16-true"``, which makes the model's
            weights bfloat16.
        micro_batch: samples that go through the model at once; None for the whole batch, or less once it did not fit.
        clip_norm: the largest norm that a gradient may have.
        sliceable: whether parts of a batch may be computed apart; None to find out by gradients.
        checkpointing: activation checkpointing of the model's blocks, as :class:`brim.Trainer` takes it. A step has no
            end, so it stays on the model until another one is made with ``checkpointing=False``.
        capture: steps as CUDA graphs: ``"auto"`` where that pays, ``"off"``, ``"require"``, or ``"padded"``, as in
            :class:`Trainer`.
        tell: called with every sentence that the step has to say; None prints them to stderr.

    Raises:
        ConfigError: for a setting that cannot be used.

    >>> model = nn.Linear(3, 1)
    >>> step = Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss())
    >>> step((torch.ones(4, 3), torch.ones(4, 1))).shape
    torch.Size([])
    """

    @known_arguments
    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss_fn: LossFunction | None = None,
        *,
        precision: str = "32",
        micro_batch: int | None = None,
        clip_norm: float | None = None,
        sliceable: bool | None = None,
        checkpointing: BlockChoice = None,
        capture: str = "auto",
        tell: Callable[[str], Any] | None = None,
    ) -> None:
        check_model(model)
        check_weights(model)
        if not isinstance(optimizer, Optimizer):
            raise ConfigError(f"optimizer is {a_type(optimizer)}; make a torch optimizer and pass that")
        refuse_closures(optimizer)
        check_loss_parameters(loss_fn, optimizer)
        if micro_batch is not None:
            check_whole("micro_batch", micro_batch, or_else="None")
        if clip_norm is not None:
            check_positive("clip_norm", clip_norm)
        check_choice("sliceable", sliceable, (None, True, False))
        parameter = next(model.parameters(), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device
        self.precision = Precision(precision, self.device)
        self.precision.check_optimizer(optimizer)
        self.precision.convert(model, loss_fn)
        self._compares = loss_fn is not None and is_criterion(loss_fn)
        eager = EagerStep(loss_of(model, loss_fn), optimizer, self.precision, micro_batch, clip_norm)
        say = tell or to_stderr
        if not holds_parameters(optimizer, model):  # an input that is optimized, perhaps: that is no mistake
            say(
                f"warning: optimizer holds none of the parameters of {type(model).__name__}, so steps leave the model "
                "as it is; make it of model.parameters()"
            )
        self._say, self._optimizer = say, optimizer
        self._stepped, self._has_told = StepsElsewhere.of(optimizer), False
        self.guard = GuardedStep(eager, model, lambda sentence, **facts: say(sentence), sliceable, checkpointing)
        self._captured = self._capture(capture, eager, model, loss_fn, say)

    @explained_errors
    def __call__(self, *batches: Batch) -> Tensor:
        if not batches:
            raise DataError("a step needs a batch")
        if len(batches) > 1 and self._compares and all(isinstance(batch, Tensor) for batch in batches):
            raise DataError("inputs and target are one batch: step((inputs, target)); step(a, b) accumulates batches")
        if not self._has_told and self._stepped.has_moved:
            self._has_told = True
            self._say(
                "warning: optimizer.step() was called beside brim.Step, which steps the optimizer itself: leave it "
                "out, unless weights are meant to move twice for a batch"
            )
        window = [self.precision.cast(move_data_to_device(batch, self.device)) for batch in batches]
        with self.precision.products():
            loss = (self.guard if self._captured is None else self._captured)(window).loss
        self._stepped.note(self._optimizer)
        return loss

    def _capture(
        self, capture: str, eager: EagerStep, model: nn.Module, loss_fn: LossFunction | None, say: Callable[[str], Any]
    ) -> CapturedStep | None:
        check_choice("capture", capture, CAPTURES)
        if capture == "require" and self.device.type != "cuda":
            raise ConfigError(f"capture='require' needs a model on a CUDA GPU, and this one is on {self.device}")
        if capture == "off" or self.device.type != "cuda":
            return None
        guard = self.guard
        prospects = None if capture == "require" else Prospects(EagerPace(CudaEvents(self.device)))
        return CapturedStep(
            guard, eager, model, loss_fn, capture == "require", lambda sentence, **facts: say(sentence),
            guard=guard, looks_each_step=True, prospects=prospects,
            padding=Padding() if capture == "padded" else None,
        )  # fmt: skip

    if not TYPE_CHECKING:  # a type checker knows by itself what there is not

        def __getattr__(self, name):
            if name not in IN_THE_CALL:
                return object.__getattribute__(self, name)
            raise UnknownAttribute(f"Step has no attribute {name}: {IN_THE_CALL[name]}")

    @property
    def captured(self) -> CaptureReport:
        """Whether steps are replayed from a captured graph, and why not."""
        return CaptureReport(reason="there is no GPU") if self._captured is None else self._captured.report

    @property
    def micro_batch(self) -> int | None:
        """Samples that go through the model at once; None while batches go through whole."""
        return self.guard.micro_batch
