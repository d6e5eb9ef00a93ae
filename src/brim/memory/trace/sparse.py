"""Sparse gradients (``nn.Embedding(sparse=True)``): fake sparse tensors hold nothing, so what they would hold is kept
beside them.

torch's fake sparse tensors know their shape and forget their indices and values, which are all the memory that they
take. Here each has its two dense parts, fake tensors as others are. What sparse operators allocate beside their results
follows from torch's sources (SparseCUDATensor.cu, SparseCUDATensorMath.cu); it was not measured.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

INDEX = 8  # bytes
MAKE = "aten._sparse_coo_tensor_with_dims_and_tensors.default"
UNKNOWN_ROWS = "which rows a sparse gradient has is not known before training: as many as there could be were taken"
PRODUCT = "what cuSPARSE takes for itself in a product with a sparse tensor is not known, and not counted"
PRODUCTS = ("aten.mm.", "aten.addmm.", "aten._sparse_addmm.", "aten._sparse_mm.")
TRANSPOSES = ("aten.t.default", "aten.transpose.int")
Parts = tuple[Tensor, Tensor]


def parts_of_real(tensor: Tensor) -> Parts:
    """What a sparse tensor holds that was there before the forecast."""
    with _disable_current_modes():
        return tensor._indices(), tensor._values()


class SparseParts:
    """The indices and the values of fake sparse tensors, and what operators make of them."""

    def __init__(
        self,
        see: Callable[[Tensor], None],
        call: Callable[..., Tensor],
        distinct: Callable[[Tensor], int | None],
        passing: Callable[[str, int], None],
        note: Callable[[str], None],
    ) -> None:
        """
        Args:
            see: writes down the storage of a dense tensor, if it is new.
            call: an operator, whose result is known where its inputs are.
            distinct: how many different numbers a tensor of indices holds, where that is known.
            passing: writes down a temporary of an operator, by the operator's name and in bytes.
            note: writes down what could not be known.
        """
        self._parts: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._coalesced: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._see, self._call, self._distinct, self._passing, self._note = see, call, distinct, passing, note

    def of(self, tensor: Tensor) -> Parts | None:
        """What a sparse tensor holds; None of a dense one."""
        return self._parts.get(tensor)  # type: ignore[no-any-return]

    def concern(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether a call makes a sparse tensor, or works on one."""
        return name == MAKE or _is_sparse_bag(name, args) or (len(self._parts) > 0 and self._first(args) is not None)

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call, with the parts of what it gives."""
        name = str(function)
        if name == MAKE:
            return self._made(args[2], args[3], args[4], bool(kwargs.get("is_coalesced")))
        if _is_sparse_bag(name, args):
            gradient, indices, rows = args[0], args[1], args[6]
            values = gradient.new_empty(
                (indices.numel(), gradient.shape[-1])
            )  # the gradient of its bag, for each entry
            return self._made((rows, gradient.shape[-1]), indices.reshape(1, -1), values)
        tensor = self._first(args)
        assert tensor is not None  # or else it would be none of this
        answered, answer = self._answer(name, tensor)
        if answered:
            return answer
        if name.startswith(PRODUCTS):
            self._note(PRODUCT)
            self._passing(name, self._beside_product(tensor, args))
            return function(*args, **kwargs)
        if not _gives_sparse(name, args[0]):
            return function(*args, **kwargs)  # on a tensor without entries: what it gives is dense
        parts, coalesced = self._follow(name, args, tensor)
        if name in TRANSPOSES and tensor.dim() == 2:
            return self._made(tensor.shape[::-1], *parts)
        if not name.partition(".")[2].partition(".")[0].endswith("_"):
            return self._made(tensor.shape, *parts, coalesced)
        self._keep(tensor, parts, coalesced)
        return tensor

    def _beside_product(self, tensor: Tensor, args: tuple[Any, ...]) -> int:
        """``s_addmm_out_sparse_dense_cuda``: the result by columns, and indices of 32 bits, rows as sums."""
        rows, entries = tensor.shape[0], self._parts[tensor][1].shape[0]
        dense = [argument for argument in args if isinstance(argument, Tensor) and argument is not tensor]
        columns = dense[-1].shape[-1] if dense else 0
        return int(rows * columns * tensor.element_size() + 4 * (rows + 1 + 2 * entries))

    def _answer(self, name: str, tensor: Tensor) -> tuple[bool, Any]:
        """What the program asks about a sparse tensor."""
        indices, values = self._parts[tensor]
        if name in ("aten._indices.default", "aten.indices.default"):
            return True, self._alias(indices)
        if name in ("aten._values.default", "aten.values.default"):
            return True, self._alias(values)
        if name == "aten._nnz.default":
            return True, values.shape[0]
        return name == "aten.is_coalesced.default", tensor in self._coalesced

    def _follow(self, name: str, args: tuple[Any, ...], tensor: Tensor) -> tuple[Parts, bool]:
        """The parts of the result, and whether each row is in it once."""
        (indices, values), coalesced = self._parts[tensor], tensor in self._coalesced
        if name in ("aten._coalesce.default", "aten.coalesce.default"):
            return ((indices, values) if coalesced else self._sorted(indices, values, tensor)), True
        if name in ("aten.detach.default", "aten.alias.default"):
            return (indices, values), coalesced
        if name == "aten._coalesced_.default":
            return (indices, values), bool(args[1])
        if name.startswith("aten.add"):
            both = [self._parts[a] for a in args[:2] if isinstance(a, Tensor) and a in self._parts]
            return (torch.cat([i for i, _ in both], 1), torch.cat([v for _, v in both])), False
        if name == "aten.sparse_mask.default":
            self._passing(name, values.nbytes)  # the rows that are looked up, before they are multiplied by the mask
            dense: Tensor = args[0]
            return (torch.empty_like(indices), dense.new_empty((values.shape[0], *dense.shape[1:]))), coalesced
        if name.partition(".")[2].partition(".")[0].endswith("_"):
            return (indices, values), coalesced
        return (self._copy(indices), torch.empty_like(values)), coalesced  # a copy, whatever is computed

    def _alias(self, part: Tensor) -> Tensor:
        """A tensor of its own: autograd takes over a sparse gradient only if nobody else holds its parts."""
        return self._call(torch.ops.aten.view.default, part, part.shape)

    def _copy(self, part: Tensor) -> Tensor:
        return self._call(torch.ops.aten.clone.default, part)

    def _made(self, size: Any, indices: Tensor, values: Tensor, coalesced: bool = False) -> Tensor:
        """A fake sparse tensor with these parts."""
        made: Tensor = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
            indices.shape[0], values.dim() - 1, list(size), indices, values, dtype=values.dtype,
            layout=torch.sparse_coo, device=torch.device("cpu"),
        )  # fmt: skip
        self._see(indices)
        self._see(values)
        self._keep(made, (indices, values), coalesced)
        return made

    def _sorted(self, indices: Tensor, values: Tensor, whole: Tensor) -> Parts:
        """``coalesce``: the indices are sorted as one number each, and rows of the same index are added up."""
        name, entries = "aten._coalesce.default", values.shape[0]
        flat = indices.new_empty((1, entries))  # it keeps this storage when it is cut to the distinct ones
        origins, offsets = indices.new_empty(entries), indices.new_empty(entries)
        for tensor in (flat, origins, offsets):
            self._see(tensor)
        self._passing(name, 2 * entries * INDEX)  # Thrust sorts keys and origins through buffers
        distinct = self._distinct(indices)
        if distinct is None:
            self._note(UNKNOWN_ROWS)
            distinct = min(entries, whole.shape[0]) if indices.shape[0] == 1 else entries
        rows = values.new_empty((distinct, *values.shape[1:]))
        self._see(rows)
        del origins, offsets
        kept = flat[:, :distinct] if indices.shape[0] == 1 else indices.new_empty((indices.shape[0], distinct))
        return kept, rows

    def _keep(self, tensor: Tensor, parts: Parts, coalesced: bool) -> None:
        self._parts[tensor] = parts
        if coalesced:
            self._coalesced[tensor] = True
        else:
            self._coalesced.pop(tensor, None)

    def _first(self, args: tuple[Any, ...]) -> Tensor | None:
        for argument in args:
            if isinstance(argument, Tensor):
                if argument.layout == torch.sparse_coo and argument in self._parts:
                    return argument
            elif isinstance(argument, list | tuple):
                found = self._first(tuple(argument))
                if found is not None:
                    return found
        return None


def _is_sparse_bag(name: str, args: tuple[Any, ...]) -> bool:
    """The gradient of ``nn.EmbeddingBag(sparse=True)``."""
    return name == "aten._embedding_bag_backward.default" and len(args) > 9 and bool(args[9])


def _gives_sparse(name: str, first: Any) -> bool:
    """Whether an operator on a sparse tensor gives one: those that write into a dense tensor do not."""
    if "to_dense" in name or "norm" in name:  # a norm torch refuses, on a card as here
        return False
    is_dense = isinstance(first, Tensor) and first.layout == torch.strided
    return name == "aten.sparse_mask.default" or not is_dense
