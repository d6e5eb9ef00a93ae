"""A batch is any nesting of tensors: walking through it, how long it is, a slice of it."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from brim.arguments.choices import shorten
from brim.arguments.known import explained_call
from brim.data.batches.rebuild import attribute_names, with_attributes, with_content, with_items
from brim.errors import ConfigError, DataError, a_type

Batch = Any  # a tensor, or dicts, lists, tuples, dataclasses of tensors in any nesting


def is_container(part: Batch) -> bool:
    """Whether ``part`` is walked into. A PackedSequence is a named tuple whose fields only make sense together."""
    if isinstance(part, Tensor | PackedSequence):  # first, because it is the common case and Mapping is slow to ask
        return False
    if isinstance(part, tuple | list | dict):
        return True
    if isinstance(part, Mapping):
        return not _is_tensordict(part)
    return dataclasses.is_dataclass(part) and not isinstance(part, type) and not _is_tensordict(part)


def _is_tensordict(part: Any) -> bool:
    """A mapping or class of tensors that share their first dimensions, knows them, and moves and slices itself."""
    return isinstance(getattr(part, "batch_size", None), torch.Size) and hasattr(part, "to")


def map_children(function: Callable[[Any], Any], part: Batch) -> Batch:
    """Rebuild a container with ``function`` applied to each of its values. Its type is kept, and nothing that its
    class does when one is made (``__post_init__``, say) happens a second time."""
    if isinstance(part, tuple | list):
        return with_items(part, [function(value) for value in part])
    if isinstance(part, Mapping):
        return with_content(part, {key: function(value) for key, value in part.items()})
    return with_attributes(part, {name: function(getattr(part, name)) for name in attribute_names(part)})


def map_leaves(function: Callable[[Any], Any], batch: Batch) -> Batch:
    """Rebuild ``batch`` with ``function`` applied to everything that is not a container."""
    if not is_container(batch):
        return function(batch)
    return map_children(lambda child: map_leaves(function, child), batch)


def leaves_of(batch: Batch) -> list[Any]:
    """All that is no container, in order.

    >>> leaves_of({"x": (1, 2), "y": ["a"]})
    [1, 2, 'a']
    """
    found: list[Any] = []
    map_leaves(found.append, batch)
    return found


def children(part: Batch) -> Iterable[Any]:
    """The values of a container, in order."""
    if isinstance(part, tuple | list):
        return part
    if isinstance(part, Mapping):
        return part.values()
    return [getattr(part, name) for name in attribute_names(part)]


def first_tensor(batch: Batch) -> Tensor | None:
    """The first tensor with a batch dimension, in the order of the containers."""
    if isinstance(batch, Tensor):
        return batch if batch.dim() else None
    if is_container(batch) or _is_tensordict(batch):
        for child in children(batch):
            if (found := first_tensor(child)) is not None:
                return found
    return None


def batch_length(batch: Batch) -> int:
    """How many samples a batch holds: the first dimension of its first tensor.

    >>> import torch
    >>> batch_length({"x": torch.zeros(8, 3), "name": "a"})
    8
    """
    if isinstance(batch, tuple | list) and batch and not isinstance(batch, PackedSequence):
        first = batch[0]  # asked at every step, so the common case comes first
        if type(first) is Tensor and first.dim():
            return first.shape[0]
    tensor = first_tensor(batch)
    if tensor is None and isinstance(batch, PackedSequence):
        return int(batch.batch_sizes[0])
    if tensor is None:
        raise DataError(
            f"a batch of type {type(batch).__name__} holds no tensor with a batch dimension, so its number of samples "
            "is unknown; let the data set or collate_fn return tensors"
        )
    return tensor.shape[0]


def slice_batch(batch: Batch, start: int, stop: int) -> Batch:
    """Samples ``start`` to ``stop`` of a batch, as views.

    Tensors, and lists or tuples without tensors (texts, say), are sliced where their length is the batch's; anything
    else belongs to the whole batch and stays as it is.
    """
    return _cut(batch, batch_length(batch), lambda part: part[start:stop])


def _cut(part: Batch, length: int, take: Callable[[Any], Any], keep: Callable[[Tensor], Tensor] | None = None) -> Batch:
    """``take`` is given what has a row for each sample; ``keep`` the other tensors, which else stay as they are."""
    if isinstance(part, Tensor):
        if part.dim() and part.shape[0] == length:
            return take(part)
        return part if keep is None else keep(part)
    if isinstance(part, PackedSequence):
        raise DataError("a PackedSequence cannot be split into micro-batches; pad it, or set micro_batch='auto'")
    if type(part) in (list, tuple) and len(part) == length and first_tensor(part) is None:
        return take(part)
    if is_container(part):
        return map_children(lambda child: _cut(child, length, take, keep), part)
    if _is_tensordict(part):
        return take(part) if part.batch_size[:1] == (length,) else part
    if hasattr(part, "to"):
        raise _unsliceable(part)
    return part


def _unsliceable(part: Any) -> DataError:
    """It holds tensors, and nobody but its class knows which of them belong to which sample."""
    return DataError(f"{a_type(part)} cannot be split into micro-batches; hand over tensors, or set micro_batch='auto'")


def select_rows(batch: Batch, rows: Tensor) -> Batch:
    """The samples with these numbers, in this order, in memory of their own; cut as :func:`slice_batch` cuts.

    >>> import torch
    >>> select_rows({"x": torch.arange(4), "name": list("abcd")}, torch.tensor([3, 0]))
    {'x': tensor([3, 0]), 'name': ['d', 'a']}
    """

    def take(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.detach().index_select(0, rows.to(part.device))
        return type(part)(part[row] for row in rows.tolist()) if type(part) in (list, tuple) else part[rows]

    return _cut(batch, batch_length(batch), take, lambda tensor: tensor.detach().clone())


def named_tensors(batch: Batch, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    """Every tensor of a batch with its place in it: keys, numbers, names of fields."""
    if isinstance(batch, Tensor):
        yield path, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from named_tensors(value, (*path, key))
    elif isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence):
        for number, value in enumerate(batch):
            yield from named_tensors(value, (*path, number))
    elif is_container(batch):
        for name in attribute_names(batch):
            yield from named_tensors(getattr(batch, name), (*path, name))


def tensor_at(batch: Batch, path: tuple[Any, ...]) -> Tensor | None:
    """The tensor at a place of a batch; None where there is none."""
    part = batch
    for key in path:
        try:
            part = part[key] if isinstance(part, Mapping | tuple | list) else getattr(part, key)
        except (KeyError, IndexError, AttributeError):
            return None
    return part if isinstance(part, Tensor) else None


@explained_call
def move_data_to_device(inputs: Batch, device: str | torch.device, non_blocking: bool = True) -> Batch:
    """The same batch on ``device``: any nesting, types kept, strings and numbers left alone.

    Args:
        inputs: a batch.
        device: where to.
        non_blocking: holds for copies to a CUDA device only: towards the CPU or MPS an asynchronous copy can be read
            before it has arrived.

    >>> move_data_to_device({"x": torch.ones(2), "name": ["a", "b"]}, "cpu")["x"].device.type
    'cpu'
    """
    target = device if isinstance(device, torch.device) else as_device(device)
    asynchronous = non_blocking and target.type == "cuda"

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(target, non_blocking=asynchronous)
        return leaf.to(target) if hasattr(leaf, "to") else leaf

    try:
        if type(inputs) is tuple and all(type(leaf) is Tensor for leaf in inputs):  # most batches: spared the walk
            return tuple([leaf.to(target, non_blocking=asynchronous) for leaf in inputs])
        return map_leaves(move, inputs)
    except (AssertionError, RuntimeError) as error:
        if target.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError(f"device={str(device)!r} was asked for, and no GPU is visible; use 'cpu'") from error
        raise


def as_device(device: Any) -> torch.device:
    """The device that is meant, or a sentence where none can be.

    >>> as_device("cuda:1")
    device(type='cuda', index=1)
    """
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device={shorten(device)} is not known; use 'cuda', 'cuda:1' or 'cpu'") from error


def cast_floats(batch: Batch, dtype: torch.dtype | None) -> Batch:
    """The same batch with its floating-point tensors in ``dtype``; whole numbers, masks and all else as they are.

    >>> cast_floats((torch.ones(2), torch.tensor([1])), torch.bfloat16)
    (tensor([1., 1.], dtype=torch.bfloat16), tensor([1]))
    """
    if dtype is None:
        return batch

    def cast(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(dtype) if leaf.is_floating_point() else leaf
        if isinstance(leaf, PackedSequence):
            return leaf.to(dtype) if leaf.data.is_floating_point() else leaf
        return leaf.apply(cast) if _is_tensordict(leaf) else leaf

    return map_leaves(cast, batch)
