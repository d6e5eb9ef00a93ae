"""What tests of the kernels' rules share: how steps are read, how a rule is asked, a convolution to start from."""

from collections.abc import Callable

import pytest
from torch import Tensor

from brim.hardware.cards import H200
from brim.memory.kernels import RULES
from brim.memory.kernels.convolution_rules import Problem
from brim.memory.kernels.scope import Call, Scope

Words = list[str]


@pytest.fixture
def written() -> Callable[[Scope], Words]:
    """Steps as o0 (an output), t12 (a temporary of 12 bytes), f12 (given back)."""

    def write(scope: Scope) -> Words:
        sizes: dict[int | None, int] = {}
        words = []
        for step in scope.steps:
            if step.output is not None:
                words.append(f"o{step.output}")
            elif step.size >= 0:
                sizes[step.temporary] = step.size
                words.append(f"t{step.size}")
            else:
                words.append(f"f{sizes[step.temporary]}")
        return words

    return write


@pytest.fixture
def ran(written: Callable[[Scope], Words]) -> Callable[..., Words]:
    """What an operator does on an H200."""

    def run(operator: str, *args: object, outputs: tuple[Tensor | None, ...] = (None,), **kwargs: object) -> Words:
        scope = Scope()
        RULES[operator](Call(operator, args, kwargs, outputs, H200), scope)
        scope.close()
        return written(scope)

    return run


@pytest.fixture
def problem() -> Problem:
    """A convolution as many networks have it."""
    return Problem(
        batch=16, channels_in=64, channels_out=128, groups=1, pixels_in=56 * 56, pixels_out=56 * 56, taps=9,
        strided=False, element=2, squares=16 * 14 * 14,
    )  # fmt: skip
