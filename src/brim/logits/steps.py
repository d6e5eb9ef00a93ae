"""Steps from a linear layer to its loss that do the same for every token: changes of what logits are computed from."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from brim.errors import ModelError


@dataclass(frozen=True, eq=False)
class Recipe:
    """Logits as ``softcap * tanh(scale / softcap * (hidden @ weight.T + bias))``, or without the bound.

    ``dtype``: which they would have. ``is_bent``: a tanh came, and the factor after it has yet to come or has.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    dtype: torch.dtype
    factor: float = 1.0  # before the tanh
    is_bent: bool = False
    bound: float = 1.0  # after it
    optimizer_steps: Callable[[], int] = lambda: 0  # so far: what fused ones write into weights, torch does not count
    _moment: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_moment", self._now())

    def _now(self) -> tuple[int, ...]:
        """The same as long as nothing is written into the tensors."""
        parts = [part for part in (self.hidden, self.weight, self.bias) if part is not None]
        return self.optimizer_steps(), *(part._version for part in parts if not part.is_inference())

    def check_unchanged(self) -> None:
        """Refuse to compute logits of another moment: the plain layer's have the numbers that there were then."""
        if self._moment != self._now():
            raise ModelError(
                "logits are used after the last layer's weights or inputs were changed, by the optimizer say, and "
                "logits='chunked' has not kept them; use them before (logits.detach() keeps them), or logits='whole'"
            )

    @property
    def softcap(self) -> float | None:
        return self.bound if self.is_bent else None

    @property
    def scale(self) -> float:
        return self.factor * self.bound if self.is_bent else self.factor

    @property
    def words(self) -> int:
        return self.weight.shape[0]


Step = Callable[..., Recipe | None]


def step_of(func: Any, recipe: Recipe, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recipe | None:
    """The recipe after ``func``; the same one where it changes nothing, None where it needs the logits."""
    step = STEPS.get(func)
    if step is None:
        return None
    try:
        return step(recipe, *args, **kwargs)
    except TypeError:  # arguments that nobody thought of
        return None


def _cast(dtype: torch.dtype) -> Step:
    def step(recipe: Recipe) -> Recipe | None:
        return _to(recipe, dtype)

    return step


def _to(recipe: Recipe, dtype: Any, device: Any = None) -> Recipe | None:
    """To another type; the loss is computed in float32 at least, so one that has less is not followed."""
    if device is not None or not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        return None
    if dtype == recipe.dtype:
        return recipe
    widens = torch.promote_types(dtype, recipe.dtype) == dtype and dtype.itemsize >= 4
    return replace(recipe, dtype=dtype) if widens else None


def _moved(recipe: Recipe, *args: Any, dtype: Any = None, device: Any = None) -> Recipe | None:
    """``Tensor.to``, of a type, or of the device where they are."""
    for value in args:
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, torch.device | str):
            device = value
        else:
            return None
    if device is not None and torch.device(device) != recipe.hidden.device:
        return None
    return recipe if dtype is None else _to(recipe, dtype)


def _cloned(recipe: Recipe) -> Recipe | None:
    """As they are, in a tensor of its own perhaps: what is written into it must not be seen in the other."""
    return replace(recipe)


def _viewed(recipe: Recipe, *shape: Any) -> Recipe | None:
    """Another shape of the tokens; the words stay the last dimension."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = tuple(shape[0])
    if not shape or not all(isinstance(size, int) for size in shape):
        return None
    tokens, hidden = recipe.hidden.shape[:-1].numel(), recipe.hidden
    if shape[-1] == -1:
        rest = torch.Size(shape[:-1])
        shape = (*shape[:-1], recipe.words) if -1 not in rest and rest.numel() == tokens else shape
    if shape[-1] != recipe.words:
        return None
    return replace(recipe, hidden=hidden.reshape(*shape[:-1], hidden.shape[-1]))


def _indexed(recipe: Recipe, index: Any) -> Recipe | None:
    """Some of the tokens, by slices: ``logits[..., :-1, :]``."""
    entries = index if isinstance(index, tuple) else (index,)
    if not all(entry is Ellipsis or isinstance(entry, slice) for entry in entries):
        return None
    dims, given = recipe.hidden.dim(), [entry for entry in entries if entry is not Ellipsis]
    if len(given) < len(entries) - 1 or len(given) > dims:
        return None
    reaches_words = len(given) == dims or (Ellipsis in entries and entries[-1] is not Ellipsis)
    if reaches_words and entries[-1] != slice(None):
        return None
    return replace(recipe, hidden=recipe.hidden[index])


def _multiplied(recipe: Recipe, other: Any) -> Recipe | None:
    if isinstance(other, bool) or not isinstance(other, int | float) or other == 0:
        return None
    if recipe.is_bent:
        return replace(recipe, bound=recipe.bound * other) if other > 0 else None
    return replace(recipe, factor=recipe.factor * other)


def _divided(recipe: Recipe, other: Any) -> Recipe | None:
    is_number = isinstance(other, int | float) and not isinstance(other, bool) and other != 0
    return _multiplied(recipe, 1 / other) if is_number else None


def _bent(recipe: Recipe) -> Recipe | None:
    return None if recipe.is_bent else replace(recipe, is_bent=True)


def _added(recipe: Recipe, other: Any) -> Recipe | None:
    """A number for each word, the same for every token, as BART adds."""
    if not isinstance(other, Tensor) or recipe.is_bent or recipe.factor != 1.0 or other.dim() > recipe.hidden.dim():
        return None
    is_for_words = other.dim() > 0 and other.numel() == other.shape[-1] == recipe.words
    if not is_for_words or not other.is_floating_point() or other.device != recipe.hidden.device:
        return None
    own = other.reshape(-1)
    dtype = torch.promote_types(recipe.dtype, other.dtype)
    return replace(recipe, bias=own if recipe.bias is None else recipe.bias + own, dtype=dtype)


STEPS: dict[Any, Step] = {
    torch.Tensor.float: _cast(torch.float32),
    torch.Tensor.double: _cast(torch.float64),
    torch.Tensor.to: _moved,
    torch.Tensor.contiguous: _cloned,
    torch.Tensor.view: _viewed,
    torch.Tensor.reshape: _viewed,
    torch.reshape: _viewed,
    torch.Tensor.__getitem__: _indexed,
    torch.Tensor.mul: _multiplied,
    torch.mul: _multiplied,
    torch.Tensor.div: _divided,
    torch.div: _divided,
    torch.Tensor.tanh: _bent,
    torch.tanh: _bent,
    torch.Tensor.add: _added,
    torch.add: _added,
}
