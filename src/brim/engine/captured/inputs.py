"""The tensors of a window of batches, and what of them a graph depends on."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from brim.data import Batch
from brim.data.batches.batch import children, is_container, map_leaves
from brim.engine.captured.report import Refusal

PLAIN = (int, float, bool, str, bytes, type(None))
Key = tuple[Any, ...]


def read_window(window: Sequence[Batch]) -> tuple[list[Tensor], Key]:
    """The tensors, in order, and a key: windows with the same key are computed by the same kernels."""
    tensors: list[Tensor] = []
    key: list[Any] = []
    _read(window, tensors, key)
    return tensors, tuple(key)


def _read(part: Any, tensors: list[Tensor], key: list[Any]) -> None:
    if isinstance(part, Tensor):
        tensors.append(part)
        key.append(part.shape)
        key.append(part.dtype)
    elif isinstance(part, tuple | list):
        key.append((type(part), len(part)))
        for item in part:
            _read(item, tensors, key)
    elif is_container(part):
        key.append((type(part), *part) if isinstance(part, Mapping) else type(part))
        for item in children(part):
            _read(item, tensors, key)
    elif type(part) in PLAIN:
        key.append(part)
    else:
        key.append(id(part))  # a stranger is a new one each time, and so never captured


def check_window(window: Sequence[Batch]) -> None:
    """Refuse batches whose content a graph would take for fixed."""

    def check(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            if not leaf.is_cuda:
                raise Refusal("a batch has a tensor that is not on the GPU")
            if leaf.is_sparse or leaf.is_nested:
                raise Refusal("a batch has a sparse or nested tensor")
        elif type(leaf) not in PLAIN:
            raise Refusal(f"a batch holds a {type(leaf).__name__}, which a graph cannot be fed with")
        return leaf

    for batch in window:
        map_leaves(check, batch)


def own_copy(window: Sequence[Batch]) -> list[Batch]:
    """The same batches in memory that nothing else writes to."""
    return [
        map_leaves(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, batch) for batch in window
    ]
