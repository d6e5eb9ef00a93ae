"""Whether products of single-precision numbers may be computed in TF32: torch's switches, of both generations.

torch 2.9 has given its backends ``fp32_precision`` beside ``allow_tf32``. The two are kept together by torch as long as
a program uses the older one alone; after the newer one was set, asking the older one is an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch


@contextmanager
def float32_products(tf32: bool | None) -> Iterator[None]:
    """TF32 allowed or not, in products of matrices and in cuDNN, and afterwards as it was; None touches nothing.

    >>> with float32_products(True):
    ...     tf32_in_products(), tf32_in_cudnn()
    (True, True)
    """
    if tf32 is None:
        yield
        return
    before = _Switches.now()
    _allow(tf32, before.speaks_old)
    try:
        yield
    finally:
        before.restore()


def tf32_in_products() -> bool:
    """Whether matrix products of single-precision numbers may be TF32."""
    with suppress(RuntimeError):
        return torch.get_float32_matmul_precision() != "highest"
    return _effective(torch.backends.cuda.matmul) == "tf32"


def tf32_in_cudnn() -> bool:
    """Whether what cuDNN computes of them may be."""
    with suppress(RuntimeError):
        return bool(torch.backends.cudnn.allow_tf32)
    return any(_effective(part) == "tf32" for part in _cudnn_parts())


@dataclass(frozen=True)
class _Switches:
    """As they stand. ``old``: of matrix products and of cuDNN; None where asking them is an error."""

    old: tuple[str, bool] | None
    new: tuple[str, ...]

    @classmethod
    def now(cls) -> "_Switches":
        old = None
        with suppress(RuntimeError):
            old = torch.get_float32_matmul_precision(), bool(torch.backends.cudnn.allow_tf32)
        return cls(old, tuple(part.fp32_precision for part in _moved()))

    @property
    def speaks_old(self) -> bool:
        return self.old is not None

    def restore(self) -> None:
        if self.old is not None:
            torch.set_float32_matmul_precision(self.old[0])
            torch.backends.cudnn.allow_tf32 = self.old[1]
        for part, value in zip(_moved(), self.new, strict=True):
            if part.fp32_precision != value:
                part.fp32_precision = value


def _allow(tf32: bool, by_old: bool) -> None:
    """By the older switches where they can be asked: torch's own code does so."""
    if by_old:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        return
    for part in _parts():
        part.fp32_precision = "tf32" if tf32 else "ieee"


def _parts() -> list[Any]:
    """What has a switch of the newer generation; none before torch 2.9."""
    matmul: Any = torch.backends.cuda.matmul
    return [matmul, *_cudnn_parts()] if _has_new(matmul) else []


def _moved() -> list[Any]:
    """What changes with them: the older switch of products is one for the CPU as well."""
    of_cpu: Any = getattr(torch.backends.mkldnn, "matmul", None)
    return [*_parts(), of_cpu] if of_cpu is not None and _has_new(of_cpu) else _parts()


def _cudnn_parts() -> list[Any]:
    cudnn: Any = torch.backends.cudnn
    return [part for name in ("conv", "rnn") if (part := getattr(cudnn, name, None)) is not None and _has_new(part)]


def _has_new(part: Any) -> bool:
    try:
        return isinstance(part.fp32_precision, str)
    except (AttributeError, AssertionError, RuntimeError):  # as torch says that it has no such switch
        return False


def _effective(part: Any) -> str:
    """Its own setting, or the one for everything where it has none."""
    own = str(part.fp32_precision) if _has_new(part) else "none"
    return own if own != "none" else str(getattr(torch.backends, "fp32_precision", "none"))
