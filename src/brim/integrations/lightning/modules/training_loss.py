"""``training_step`` as a loss of brim's, and whether it may be captured as a CUDA graph."""

import dis
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from brim.engine.sandbox.named_state import NamedState
from brim.errors import ConfigError, a_type
from brim.integrations.lightning.module_kind import is_overridden, plain_function, takes_batch_idx
from brim.integrations.lightning.modules.batch_transfer import BatchTransfer
from brim.integrations.lightning.modules.loop_state import LoopState

# Numbers of the host that move with every step: a graph would freeze them.
MOVING = ("current_epoch", "global_step", "trainer", "optimizers", "lr_schedulers")
# Hooks within a step, or that are handed what its Python code returned: a replay runs no Python.
OF_PYTHON = ("on_train_batch_end", "on_after_backward", "on_before_optimizer_step")


def training_loss(loop: LoopState, transfer: BatchTransfer, before: Callable[[], None] = lambda: None) -> partial[Any]:
    """A ``function(model, batch)`` that calls the training step of ``model``, and ``before`` each time.

    The user's function is an argument of it, so that whoever reads the code of a loss reads that of the step.
    """
    step: Any = loop.module.training_step
    is_numbered = takes_batch_idx(step)
    keeps_outputs = is_overridden(loop.module, "on_train_batch_end")  # else they would be held until the next step

    def call(model: Any, batch: Any) -> Any:
        before()
        if model is not loop.module and getattr(model, "_trainer", None) is None:
            model.trainer = loop.module._trainer  # Lightning leaves it out of copies
        batch = transfer.after(model, batch, 0)
        with loop.within("training_step"):
            returned = model.training_step(batch, *([loop.batch_idx] if is_numbered else []))
        loss = loss_in(returned, type(model).__name__)
        loop.batch, loop.returned = batch, returned if keeps_outputs else None
        return loss

    return partial(_loss, call, plain_function(step))


def _loss(call: Callable[[Any, Any], Any], step: Any, model: nn.Module, batch: Any) -> Any:
    return call(model, batch)


def loss_in(returned: Any, kind: str) -> Any:
    """The loss in what a training step returns.

    >>> loss_in({"loss": 1.0, "preds": None}, "LitModel")
    1.0
    """
    if returned is None:
        raise ConfigError(
            f"{kind}.training_step returned None, which makes Lightning leave out the batch; brim leaves out none: "
            "return the loss, or a loss times 0"
        )
    if isinstance(returned, Mapping):
        if "loss" not in returned:
            raise ConfigError(f"{kind}.training_step returned a dict without 'loss'; add it")
        return returned["loss"]
    if not isinstance(returned, Tensor):
        raise ConfigError(
            f"{kind}.training_step returned {a_type(returned)}; return the loss as a tensor, or a dict with it"
        )
    return returned


def why_not_captured(module: nn.Module, loss: Any) -> str | None:
    """Why a step of this module has to run its Python code each time; None where a graph may repeat it."""
    step = plain_function(module.training_step)
    if step is None or reads_argument(step, 2):
        return "training_step reads its batch_idx, a number of the host"
    if (named := next((name for name in MOVING if name in NamedState(module, loss).names), None)) is not None:
        return f"the step's code names {named}, which has numbers of the host"
    hook = next((name for name in OF_PYTHON if is_overridden(module, name)), None)
    return None if hook is None else f"{hook} is called in each step"


def reads_argument(function: Any, place: int) -> bool:
    """Whether code reads one of its positional arguments; where it takes any number of them, it may.

    >>> reads_argument(lambda self, batch, batch_idx: batch, 2), reads_argument(lambda self, b, i: i, 2)
    (False, True)
    """
    code = function.__code__
    if code.co_flags & 0x04 and code.co_argcount <= place:  # *arguments
        return True
    if code.co_argcount <= place:
        return False
    name = code.co_varnames[place]
    if name in code.co_cellvars:
        return True
    for step in dis.get_instructions(code):
        read = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if "LOAD" in step.opname and name in read:
            return True
    return False
