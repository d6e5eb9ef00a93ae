"""Dropout: the kernel makes its mask before its output."""

from brim.memory.kernels.scope import Call, Rule, Scope


def native_dropout(call: Call, scope: Scope) -> None:
    """``aten.native_dropout`` (``dropout_cuda`` in ATen's cuda/Dropout.cu)."""
    scope.output(1)
    scope.output(0)


RULES: dict[str, Rule] = {"aten.native_dropout.default": native_dropout}
