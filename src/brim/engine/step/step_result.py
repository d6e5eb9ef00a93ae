"""What comes of one optimizer step."""

from typing import NamedTuple

from torch import Tensor


class StepResult(NamedTuple):
    """What a step returns; a tuple, since one is made at every step and a frozen dataclass costs a microsecond."""

    loss: Tensor  # the mean over the window, of all ranks; still on the device
    stepped: bool = True  # False where fp16 is known to have overflowed, so that a schedule must not advance
    signalled: bool = False  # a rank was asked to stop by a signal: all stop after this step
    stop_requested: bool = False  # or by the trainer or a callback
    uneven_gradients: bool = False  # a parameter has a gradient on some ranks only
