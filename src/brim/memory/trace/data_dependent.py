"""Operators whose answer depends on data, which fake tensors do not have.

Two things help. Whole numbers and truth values are mostly indices and masks, small enough to be computed for real
beside the fake ones, and so is what follows from nothing else: then "is this mask full?" has its true answer, and a
mask picks as many rows as it really picks. What depends on weights or on floating-point data gets a harmless answer, or
the largest result that it could have.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from brim.errors import ModelError

aten = torch.ops.aten
LARGEST_KNOWN = 1 << 25  # bytes of a tensor whose values are kept
# Elements of floats that no other tensor led to: masks of a batch are made of ones, but so do weights begin.
LARGEST_FREE = 1 << 18
LARGEST_DRAWN = 1 << 10
LOOKS_FOR_BAD = {"isnan", "isinf", "isneginf", "isposinf"}
COUNTS = {"any", "sum", "count_nonzero"}  # of no bad number: none
WITH_NONE = {"eq", "ne", "gt"}  # a count with 0
COMPARES = ("ne", "eq")  # what holds of a healthy number beside infinity, and beside itself
NEGATES, JOINS = {"logical_not", "bitwise_not"}, {"mul", "logical_and", "bitwise_and"}
MAKES_VALUES = {
    "aten.arange",
    "aten.linspace",
    "aten.logspace",
    "aten.zeros",
    "aten.ones",
    "aten.full",
    "aten.randint",
    "aten.randperm",
    "aten.tril_indices",
    "aten.scalar_tensor",
    "aten.lift_fresh",
    "aten.eye",
}


UNBOUNDED = ("aten.repeat_interleave", "aten.bincount")  # may give more values than they are given


class KnownValues:
    """The values of fake tensors of whole numbers and truth values, where they follow from what is known."""

    def __init__(self) -> None:
        self._values: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._likely: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def of(self, tensor: Tensor) -> Tensor | None:
        if not isinstance(tensor, FakeTensor):
            return tensor
        value: Tensor | None = self._values.get(tensor)
        return value

    def numbers(self, tensor: Tensor) -> list[int] | None:
        value = self.of(tensor)
        if value is None:
            return None
        with _disable_current_modes():
            return [int(number) for number in value.flatten().tolist()]

    def distinct(self, tensor: Tensor) -> int | None:
        """How many different values it holds, by columns, where they are known."""
        value = self.of(tensor)
        if value is None:
            return None
        with _disable_current_modes():
            found: Tensor = value.unique(dim=-1)
            return found.shape[-1]

    def know(self, tensor: Tensor, value: Tensor) -> None:
        with _disable_current_modes():
            self._values[tensor] = value.detach().cpu().clone()

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Compute for real what was computed fake, if everything it needs is known."""
        self._follow_doubt(str(function), args, result)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor)]
        writes = function._schema.is_mutable
        is_drawn = torch.Tag.nondeterministic_seeded in function.tags
        most_floats = LARGEST_DRAWN if is_drawn else LARGEST_KNOWN if tensors else LARGEST_FREE
        is_small = all(_is_small(tensor, most_floats) for tensor in results)
        if not (writes or is_small):
            return
        known = bool(tensors) or _is_of_numbers(function, args) or str(function).rpartition(".")[0] in MAKES_VALUES
        known &= is_small or not is_drawn
        if known and all(self._is_known(tensor, writes) for tensor in tensors):
            try:
                values = tree_leaves(self._compute(function, args, kwargs))
            except NotImplementedError:  # by the CPU, as a histogram of whole numbers
                values = []
            for tensor, value in zip(results, values, strict=False):
                self._values[tensor] = value
        elif writes:  # something unknown was written into what may have been known
            for written in _written(function, args, kwargs):
                self._forget(written)

    def _forget(self, written: Tensor) -> None:
        """What a tensor holds, and whatever shares its storage."""
        if written in self._values:
            storage = written.untyped_storage()._cdata
            for known in [known for known in self._values if known.untyped_storage()._cdata == storage]:
                self._values.pop(known, None)

    def _follow_doubt(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """ "Is everything as it should be?": it is. "Is anything not a number?": nothing is."""
        operator = name.split(".")[1]
        of = [self._likely.get(arg) if isinstance(arg, Tensor) else None for arg in args[:2]]
        if operator in ("all", "_is_all_true"):
            self._likely[result] = True
        elif operator in LOOKS_FOR_BAD or (operator in COUNTS and of[0] is False):
            self._likely[result] = False
        elif operator in WITH_NONE and of[0] is False and len(args) > 1 and type(args[1]) is int and args[1] == 0:
            self._likely[result] = operator == "eq"
        elif operator in COMPARES and _finds_bad(*args[:2]):  # how torch.isfinite is computed, and x != x
            self._likely[result] = operator == COMPARES[args[0] is args[1]]
        elif operator in NEGATES and of[0] is not None:
            self._likely[result] = not of[0]
        elif operator in JOINS and None not in of and len(of) == 2:
            self._likely[result] = all(of)

    def _is_known(self, tensor: Tensor, to_be_written: bool) -> bool:
        if not isinstance(tensor, FakeTensor):
            return not to_be_written  # the user's own data is never written to
        return tensor in self._values

    def answer(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the program is told where it asks for a number: the true one if it is known."""
        if self.knows(args, kwargs):
            return self._compute(function, args, kwargs)
        likely: bool | None = self._likely.get(args[0])
        return ANSWERS[str(function)](*args, **kwargs) if likely is None else likely

    def guesses(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an answer is neither known nor what every healthy training has."""
        return not self.knows(args, kwargs) and self._likely.get(args[0]) is None

    def knows(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return all(self.of(leaf) is not None for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))

    def _compute(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def real(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return self.of(leaf)
            return leaf.clone_state() if isinstance(leaf, torch._C.Generator) else leaf  # the user's own draws nothing

        real_args, real_kwargs = tree_map(real, (args, kwargs))
        with unset_fake_temporarily():
            return function(*real_args, **real_kwargs)


def _scalar(tensor: Tensor) -> bool | int | float:
    """``.item()``: a half, 1, or False. False keeps a mask: "are all positions real?" is asked in order to skip it."""
    if tensor.dtype == torch.bool:
        return False
    return 0.5 if tensor.is_floating_point() else 1


ANSWERS: dict[str, Callable[..., Any]] = {
    "aten._local_scalar_dense.default": _scalar,
    "aten.item.default": _scalar,
    "aten.equal.default": lambda a, b: False,
    "aten.is_nonzero.default": lambda tensor: False,
    "aten.allclose.default": lambda *args, **kwargs: False,
}


def _is_of_numbers(function: Any, args: tuple[Any, ...]) -> bool:
    """``torch.div(7, 2)``: an operator on tensors that was given numbers in their place."""
    expected = function._schema.arguments
    return bool(args) and type(args[0]) in (int, float) and str(expected[0].type) == "Tensor"


def _written(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The arguments of an operator that it writes to."""
    expected = function._schema.arguments
    given = [*zip(expected, args, strict=False), *((one, kwargs[one.name]) for one in expected if one.name in kwargs)]
    for argument, value in given:
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _finds_bad(one: Any, other: Any) -> bool:
    """Whether comparing them tells numbers that are not finite from others."""
    return one is other or (isinstance(other, int | float) and math.isinf(other))


def _is_small(tensor: Tensor, most_floats: int) -> bool:
    if tensor.is_complex() or (tensor.is_floating_point() and tensor.numel() > most_floats):
        return False
    return tensor.numel() * tensor.element_size() <= LARGEST_KNOWN


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _least_squares(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Solution, residuals, and no rank and no singular values: the one driver that CUDA has gives none."""
    is_vector = a.dim() - 1 == b.dim() and b.shape == a.shape[:-1]
    right = b.shape[:0] if is_vector else b.shape[-1:]
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-1] if is_vector else b.shape[:-2])
    residuals = a.new_empty((*batch, *right) if a.shape[-2] > a.shape[-1] else 0)
    return a.new_empty((*batch, a.shape[-1], *right)), residuals, a.new_empty(0, dtype=torch.long), a.new_empty(0)


class DynamicShapes:
    """The results of operators whose size depends on data: the true size where it is known, else the largest there can
    be, or of those that are `UNBOUNDED` as many as they are given."""

    def __init__(self, values: KnownValues) -> None:
        self.values = values

    def result(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """What the operator gives, and whether it is known to be that large."""
        x: Tensor = args[0]
        if name.startswith("aten.nonzero.default"):
            hits, exact = self._hits(x)
            return x.new_empty((hits, x.dim()), dtype=torch.long), exact
        if name.startswith("aten.masked_select"):
            hits, exact = self._hits(args[1])
            return x.new_empty(hits * max(1, x.numel() // max(1, args[1].numel()))), exact
        if name.startswith("aten.index.Tensor"):
            return self._indexed(x, args[1])
        if name.startswith("aten.unique_dim"):
            return self._rows(x, name, args[1] % max(1, x.dim()))
        if name.startswith("aten.unique_consecutive") and (along := _given(args, kwargs, 3, "dim")) is not None:
            return self._rows(x, name, along % max(1, x.dim()))
        if name.startswith(("aten._unique2", "aten.unique_consecutive")):
            distinct, exact = self._distinct(x, name)
            places = x.new_empty(x.shape, dtype=torch.long)
            return (x.new_empty(distinct), places, places.new_empty(distinct)), exact
        if name.startswith("aten.repeat_interleave.Tensor"):
            total, exact = self._total(x, kwargs.get("output_size"))
            return x.new_empty(total), exact
        if name.startswith("aten.bincount"):
            weights, least = _given(args, kwargs, 1, "weights"), _given(args, kwargs, 2, "minlength", 0)
            bins, exact = self._bins(x, least)
            return x.new_empty(bins, dtype=torch.long if weights is None else weights.dtype), exact
        if name.startswith("aten.linalg_lstsq"):
            return _least_squares(x, args[1]), True
        raise ModelError(f"{name} gives as many values as its data says, and how many it may give is not known")

    def _rows(self, x: Tensor, name: str, dim: int) -> tuple[Any, bool]:
        """The distinct rows along a dimension, with the place of each and how often it is there."""
        distinct, exact = self._distinct(x, name, dim)
        places = x.new_empty(x.shape[dim], dtype=torch.long)
        rows = x.new_empty((*x.shape[:dim], distinct, *x.shape[dim + 1 :]))
        return (rows, places, places.new_empty(distinct)), exact

    def _hits(self, mask: Tensor) -> tuple[int, bool]:
        """How many elements are not zero."""
        value = self.values.of(mask)
        if value is None:
            return mask.numel(), False
        with unset_fake_temporarily():
            return int(value.count_nonzero()), True

    def _distinct(self, x: Tensor, name: str, dim: int | None = None) -> tuple[int, bool]:
        value = self.values.of(x)
        if value is None:
            return (x.numel() if dim is None else x.shape[dim]), False
        with unset_fake_temporarily():
            found: Tensor = value.unique_consecutive(dim=dim) if "consecutive" in name else value.unique(dim=dim)
            return found.shape[dim or 0], True

    def _bins(self, x: Tensor, least: int) -> tuple[int, bool]:
        value = self.values.of(x)
        if value is None:
            return max(x.numel(), least), False
        with unset_fake_temporarily():
            return len(value.bincount(minlength=least)), True

    def _total(self, repeats: Tensor, given: int | None) -> tuple[int, bool]:
        value = self.values.of(repeats)
        if given is not None or value is None:
            return given or repeats.numel(), given is not None
        with unset_fake_temporarily():
            return int(value.sum()), True

    def _indexed(self, x: Tensor, indices: list[Tensor | None]) -> tuple[Tensor, bool]:
        """A boolean mask picks what it marks, at most everything that it covers."""
        expanded: list[Tensor | None] = []
        exact = True
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                hits, is_known = self._hits(index)
                expanded += [index.new_empty(hits, dtype=torch.long)] * index.dim()
                exact &= is_known
            else:
                expanded.append(index)
        return aten.index.Tensor(x, expanded), exact
