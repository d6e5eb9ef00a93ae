"""The same random numbers for the parts of a batch as for the whole: each part gets the rows of its samples."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from brim.engine.splitting.index_watch import IndexWatch
from brim.engine.splitting.without_dropout import without_dropout

# Operators whose result is nothing but drawn, so that recorded numbers can take its place.
DRAWS = {
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "native_dropout",
    "normal", "normal_", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "random_", "uniform", "uniform_",
}  # fmt: skip


NLL = {"nll_loss_forward", "nll_loss2d_forward"}


class CannotSplit(Exception):
    """Random numbers were drawn of which it is unknown which samples they belong to."""


@dataclass(eq=False)
class SameDraws:
    """Records what is drawn for a batch, and hands it out again for some of its samples.

    Dropout within attention and recurrent layers is switched off meanwhile: their kernels draw by themselves, and what
    they drop says nothing about which samples they look at.
    """

    model: nn.Module | None
    samples: int
    ignored: list[int] = field(default_factory=list)  # values that criteria were told to leave out
    weighs_classes: bool = False  # whether a criterion's mean is over weights of classes
    written: set[int] = field(default_factory=set)  # memory that was written to in place
    indices: IndexWatch = field(default_factory=IndexWatch)
    _drawn: "list[_Drawn]" = field(default_factory=list)

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._drawn = []
        with without_dropout(self.model, in_functions=False), _Recorder(self):
            yield

    @contextmanager
    def replaying(self, rows: Tensor) -> Iterator[None]:
        with without_dropout(self.model, in_functions=False), _Replayer(self._drawn, rows, self.samples):
            yield

    def note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Remember what one operator did for the whole batch."""
        if is_draw(func):
            self._drawn.append(_Drawn(_name(func), _drawn_part(func, result).detach().clone()))
        elif _name(func) in NLL and len(args) >= 5:
            is_mean = args[3] == 1
            self.ignored += [args[4]]
            self.weighs_classes = self.weighs_classes or (is_mean and args[2] is not None)
        self.indices.note(func, args, kwargs, result)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Tensor):
                self.written.add(value.untyped_storage().data_ptr())


@dataclass
class _Drawn:
    """What one operator drew, and along which dimension samples lie: known once a part has drawn as well."""

    name: str
    numbers: Tensor
    along: int | None = None


class _Recorder(TorchDispatchMode):
    def __init__(self, draws: SameDraws) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = draws

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.draws.note(func, args, kwargs, result)
        return result


class _Replayer(TorchDispatchMode):
    def __init__(self, drawn: list[_Drawn], rows: Tensor, samples: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn = iter(drawn)
        self.rows = rows
        self.samples = samples

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not is_draw(func):
            return result
        drawn = next(self.drawn, None)
        if drawn is None or drawn.name != _name(func):
            raise CannotSplit("it draws other random numbers for a part of a batch than for the whole")
        mine = _drawn_part(func, result)
        mine.copy_(self._rows_of_draw(drawn, mine))
        if drawn.name == "native_dropout":
            result[0].copy_(args[0] * mine * (1 / (1 - args[1]) if args[1] < 1 else 0.0))
        return result

    def _rows_of_draw(self, drawn: _Drawn, wanted: Tensor) -> Tensor:
        """What was drawn for these samples: along the one dimension that is shorter for fewer of them."""
        recorded = drawn.numbers
        if recorded.shape == wanted.shape and drawn.along is None:
            lengths = [at for at, length in enumerate(recorded.shape) if length == self.samples]
            if len(self.rows) < self.samples or len(lengths) != 1:
                return recorded
            return recorded.index_select(lengths[0], self.rows.to(recorded.device))
        if recorded.dim() == wanted.dim():
            others = [at for at, (a, b) in enumerate(zip(recorded.shape, wanted.shape, strict=True)) if a != b]
            if len(others) == 1:
                drawn.along = others[0]
            if drawn.along is not None and all(at == drawn.along for at in others):
                each = recorded.shape[drawn.along] // self.samples
                if wanted.shape[drawn.along] == each * len(self.rows):
                    numbers = (self.rows[:, None] * each + torch.arange(each)).flatten()
                    return recorded.index_select(drawn.along, numbers.to(recorded.device))
        raise CannotSplit("it draws random numbers that belong to the batch as a whole")


def is_draw(func: Any) -> bool:
    """Whether an operator gives nothing but random numbers; one that shuffles a batch cannot be split."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    name = _name(func)
    if name == "randperm":
        raise CannotSplit("it shuffles the batch at random")
    return name in DRAWS


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def _drawn_part(func: Any, result: Any) -> Tensor:
    """The random numbers in the result of an operator."""
    drawn: Tensor = result[1] if _name(func) == "native_dropout" else result
    return drawn
