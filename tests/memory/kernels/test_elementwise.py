"""Dropout allocates its mask first."""

from brim.hardware.cards import H200
from brim.memory.kernels import RULES, Call, Scope


def test_the_mask_comes_before_the_output() -> None:
    scope = Scope()
    RULES["aten.native_dropout.default"](Call("aten.native_dropout.default", (), {}, (), H200), scope)
    assert [step.output for step in scope.steps] == [1, 0]
