"""Dropout switched off for a while, also where it hides in attention and recurrent layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from brim.replaced import replaced

OF_TENSORS = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout}


@contextmanager
def without_dropout(model: nn.Module | None, in_functions: bool = True) -> Iterator[None]:
    """``in_functions``: also where code calls ``torch.nn.functional.dropout`` itself."""
    modules = [] if model is None else list(model.modules())
    layers: list[tuple[nn.Module, str, float]] = [
        (m, "p", 0.0) for m in modules if isinstance(m, nn.modules.dropout._DropoutNd)
    ]
    layers += [(m, "dropout", 0.0) for m in modules if isinstance(m, nn.RNNBase | nn.MultiheadAttention)]
    with replaced(*layers), _NoDropout(in_functions):
        yield


class _NoDropout(TorchFunctionMode):
    def __init__(self, in_functions: bool) -> None:
        super().__init__()
        self.in_functions = in_functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
            args = args[:4]  # query, key, value, mask; the share that is dropped comes next
        elif self.in_functions and func in OF_TENSORS:
            kwargs["training"] = False
            args = args[:2]  # the tensor and the share, before whether it is done
        return func(*args, **kwargs)
