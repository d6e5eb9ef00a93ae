"""Logits that are not computed before it is known what for.

A model of transformers hands its logits to ``F.cross_entropy`` after a few steps that are the same for every token: a
change of type, a view, a shift by one position, a factor, a bound, a bias. These steps are remembered. When the loss
comes, it is computed in chunks; whatever else is done with the logits gets them whole, as the plain layer gives them.
"""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from brim.errors import ModelError
from brim.logits.linear_cross_entropy import linear_cross_entropy
from brim.logits.steps import Recipe, step_of

Told = Callable[[str], None]
_TENSOR: Any = torch.Tensor  # whose attributes are functions too
METADATA = {
    _TENSOR.shape.__get__, _TENSOR.dtype.__get__, _TENSOR.device.__get__, _TENSOR.ndim.__get__, _TENSOR.layout.__get__,
    _TENSOR.is_cuda.__get__, _TENSOR.is_sparse.__get__, _TENSOR.size, _TENSOR.dim, _TENSOR.numel, _TENSOR.nelement,
    _TENSOR.__len__, _TENSOR.is_floating_point, _TENSOR.is_complex, _TENSOR.element_size, torch.is_floating_point,
    torch.is_complex, torch.numel,
}  # fmt: skip
REQUIRES_GRAD = _TENSOR.requires_grad.__get__
ASKS_FOR_GRADIENTS = {_TENSOR.register_hook, _TENSOR.retain_grad, torch.autograd.grad}


class PendingLogits(torch.Tensor):
    """Has the shape, type and device of the logits, and what they would be computed from.

    Operations that are not followed get the tensor itself (:meth:`whole`). From then on it is that tensor in all but
    its Python object: what is written into it stays, and views of it are views.
    """

    _recipe: Recipe
    _family: "_Family"
    _made_from: "tuple[PendingLogits, Callable[[Tensor], Tensor]] | None"
    _state: "_State"
    _whole: Tensor | None

    @staticmethod
    def of(
        hidden: Tensor, weight: Tensor, bias: Tensor | None, told: Told, optimizer_steps: Callable[[], int] = lambda: 0
    ) -> "PendingLogits":
        """What ``F.linear(hidden, weight, bias)`` would be."""
        state = _State.now(hidden.device.type)
        recipe = Recipe(hidden, weight, bias, state.dtype_of(hidden), optimizer_steps=optimizer_steps)
        return _pending(recipe, _Family(told), None, state)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("input")
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if isinstance(first, PendingLogits) and first._whole is None:
            if func == REQUIRES_GRAD:
                return first._requires_grad()
            if func is F.cross_entropy:
                loss = first._loss(*args[1:], **{key: value for key, value in kwargs.items() if key != "input"})
                if loss is not None:
                    return loss
            elif args and (made := first._follow(func, args[1:], kwargs)) is not None:
                return made
        name = getattr(func, "__name__", str(func))
        args, kwargs = tree_map_only(
            PendingLogits, lambda pending: pending._for(func in ASKS_FOR_GRADIENTS, name), (args, kwargs)
        )
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # Below autograd nothing could be made good: gradients would be lost.
        raise ModelError(f"{func} uses logits in a way that logits='chunked' cannot follow; use logits='whole'")

    def whole(self, wanted_by: str = "") -> Tensor:
        """The logits as a tensor; all that was made from the same ones becomes tensors too, in its order."""
        if self._whole is None:
            self._family.compute(wanted_by)
        assert self._whole is not None
        return self._whole

    def _for(self, asks_for_gradients: bool, wanted_by: str) -> Tensor:
        """The logits as a tensor, unless it would wait for gradients that a loss in chunks does not hand to it."""
        if asks_for_gradients and self._family.has_loss:
            raise ModelError(
                f"{wanted_by} asks for gradients of logits whose loss was computed in chunks, without them; "
                "use logits='whole'"
            )
        return self.whole(wanted_by)

    def _compute(self) -> None:
        self._recipe.check_unchanged()
        with self._state.entered():
            if self._made_from is None:
                self._whole = F.linear(self._recipe.hidden, self._recipe.weight, self._recipe.bias)
            else:
                before, step = self._made_from
                assert before._whole is not None
                self._whole = step(before._whole)

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "PendingLogits | None":
        self._recipe.check_unchanged()
        recipe = step_of(func, self._recipe, args, kwargs)
        if recipe is None:
            return None
        if recipe is self._recipe:
            return self

        def step(logits: Tensor) -> Tensor:
            result: Tensor = func(logits, *args, **kwargs)
            return result

        return _pending(recipe, self._family, (self, step), _State.now(self._recipe.hidden.device.type))

    def _loss(
        self, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
        reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> Tensor | None:  # fmt: skip
        """The cross entropy in chunks; None where it needs all logits."""
        recipe = self._recipe
        recipe.check_unchanged()
        is_plain = weight is None and size_average is None and reduce is None and reduction in ("mean", "sum")
        is_by_token = isinstance(target, Tensor) and type(target) is not PendingLogits and self.dim() == 2
        if not is_plain or not is_by_token or target.shape != recipe.hidden.shape[:-1] or target.is_floating_point():
            return None
        state = _State.now(recipe.hidden.device.type)
        with self._state.autocast():  # the layer was called under it, and its product is computed now
            loss = linear_cross_entropy(
                recipe.hidden, recipe.weight, target, recipe.bias, ignore_index=ignore_index, reduction=reduction,
                label_smoothing=label_smoothing, scale=recipe.scale, softcap=recipe.softcap,
            )  # fmt: skip
        self._family.has_loss = True
        return loss if state.enabled else loss.to(recipe.dtype)

    def _requires_grad(self) -> bool:
        """Once there is a loss, that has the graph: FSDP would ask for a hook on these, and so for all logits."""
        parts = (self._recipe.hidden, self._recipe.weight, self._recipe.bias)
        return not self._family.has_loss and any(part is not None and part.requires_grad for part in parts)


def _pending(recipe: Recipe, family: "_Family", made_from: Any, state: "_State") -> PendingLogits:
    shape = (*recipe.hidden.shape[:-1], recipe.weight.shape[0])
    made: Any = _TENSOR._make_wrapper_subclass(PendingLogits, shape, dtype=recipe.dtype, device=recipe.hidden.device)
    made._recipe, made._family, made._made_from, made._state, made._whole = recipe, family, made_from, state, None
    family.members.append(weakref.ref(made))
    return made  # type: ignore[no-any-return]


class _Family:
    """All that was made from the logits of one call, in order."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.members: list[weakref.ref[PendingLogits]] = []
        self.has_loss = False

    def compute(self, wanted_by: str) -> None:
        self.told(wanted_by)
        for member in self.members:
            pending = member()
            if pending is not None and pending._whole is None:
                pending._compute()


@dataclass(frozen=True)
class _State:
    """What of torch's state decides how an operation is computed: it may be computed later, when that is another."""

    kind: str
    enabled: bool
    dtype: torch.dtype
    grad: bool

    @classmethod
    def now(cls, kind: str) -> "_State":
        return cls(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), torch.is_grad_enabled())

    def dtype_of(self, hidden: Tensor) -> torch.dtype:
        return self.dtype if self.enabled and hidden.dtype != torch.float64 else hidden.dtype

    def autocast(self) -> Any:
        return torch.autocast(self.kind, self.dtype, enabled=self.enabled)

    def entered(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(self.autocast())
        stack.enter_context(torch.set_grad_enabled(self.grad))
        return stack
