"""What one pass of a loss says beside the loss: numbers to log, and the outputs that metrics see."""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brim.engine.numbers.summed_loss import Loss
from brim.errors import ConfigError, a_type

OUTPUTS = "outputs"
Number = Tensor | float | Loss
# What a line of metrics.jsonl holds anyway.
RESERVED = frozenset({
    "loss", "lr", "step", "epoch", "time", "samples_per_second", "step_ms", "memory_allocated", "memory_reserved",
    "memory_process",
})  # fmt: skip

RESERVED_PREFIXES = ("eval/", "feed/", "share/")


class LoggedNumber(NamedTuple):
    """A number that was logged in a pass, and what it is a mean over."""

    name: str
    value: Number
    weight: Tensor | float


class Taken:
    """What is said in a pass, while this is entered.

    Each step enters one: as a context of its own it takes a third of the time of one by contextlib.
    """

    __slots__ = ("_before", "_threads", "has_outputs", "numbers", "outputs")

    def __init__(self, threads: threading.local) -> None:
        self._threads = threads
        self.numbers: list[tuple[str, Number]] = []
        self.outputs: Any = None
        self.has_outputs = False

    def __enter__(self) -> "Taken":
        self._before = getattr(self._threads, "taken", None)
        self._threads.taken = self
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.taken = self._before


class PassNotes:
    """Where a loss leaves what it says beside itself. Nobody takes it, and it is gone: trials of a loss log nothing.

    >>> notes = PassNotes()
    >>> notes.log("lost", 1.0)
    >>> with notes.taking() as taken:
    ...     notes.log("kl", 0.5)
    >>> taken.numbers
    [('kl', 0.5)]
    """

    def __init__(self) -> None:
        self._threads = threading.local()  # parts of a batch may be computed side by side, each in a thread of its own

    @property
    def _taken(self) -> Taken | None:
        return getattr(self._threads, "taken", None)

    def log(self, name: str, value: Number) -> None:
        """A number of this pass: a mean over what the loss is a mean over, or ``brim.Loss(total, count)``."""
        taken = self._taken
        if taken is not None:
            taken.numbers.append((name, kept(name, value)))

    def take_extras(self, returned: Mapping[Any, Any]) -> None:
        """What a loss returned beside ``"loss"``: single numbers are logged, ``"outputs"`` is for metrics."""
        taken = self._taken
        if taken is None:
            return
        for name, value in returned.items():
            if name == OUTPUTS:
                taken.outputs, taken.has_outputs = value, True
            elif name != "loss" and _is_number(value):
                self.log(str(name), value)

    def taking(self) -> Taken:
        """Within, what is said is taken; another pass within this one has its own."""
        return Taken(self._threads)


def numbers_of(name: str | Mapping[str, Number], value: Number | None) -> Mapping[str, Number]:
    """What is logged by name: one number, or a dict of them.

    >>> numbers_of("kl", 0.5), numbers_of({"kl": 0.5, "beta": 1.0}, None)
    ({'kl': 0.5}, {'kl': 0.5, 'beta': 1.0})
    """
    if isinstance(name, str) and value is not None:
        return {name: value}
    if isinstance(name, Mapping) and value is None and all(isinstance(one, str) for one in name):
        return name
    got = f"log({name!r})" if isinstance(name, str) else f"{a_type(name)}"
    raise ConfigError(f"log takes a name and a number, log('kl', value), or a dict of numbers by name, and got {got}")


def kept(name: str, value: Number) -> Number:
    """A number as it can be kept: a copy without its graph, for what it is a part of may change. Others are refused."""
    if not name.strip():
        raise ConfigError(f"log({name!r}, ...) has no name to write the number under; give it one")
    if name.startswith(RESERVED_PREFIXES):
        raise ConfigError(
            f"log({name!r}, ...) would be taken for a number that brim writes itself, {name.split('/')[0]}/...; give "
            "it another name (on_evaluate may add to its metrics, which become eval/...)"
        )
    if name in RESERVED:
        raise ConfigError(f"log({name!r}, ...) would replace a number that brim writes itself; give it another name")
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.detach().clone()
    if isinstance(value, int | float):
        return value
    if isinstance(value, Loss):
        count = value.count.detach().clone() if isinstance(value.count, Tensor) else value.count
        return Loss(value.total.detach().clone(), count)
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    raise ConfigError(
        f"log({name!r}, ...) takes a number, a tensor with one number, or brim.Loss(total, count), and got a "
        f"{type(value).__name__}{shape}"
    )


def weighted(number: Number, count: Tensor | float, device: torch.device) -> tuple[Tensor, Tensor | float]:
    """Total and count of a number that is a mean over ``count`` things.

    >>> weighted(0.5, 4, torch.device("cpu"))
    (tensor(2.), 4)
    """
    if isinstance(number, Loss):
        return number.total.to(device), number.count
    if not isinstance(number, Tensor):  # filled in by the device: a copy would make the host wait for it
        number = torch.full((), number, device=device)
    return number.to(device, torch.float32).reshape(()) * count, count


def _is_number(value: Any) -> bool:
    return value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, int | float | Loss)
