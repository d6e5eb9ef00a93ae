"""Code that the user has compiled, run as plain Python for a while."""

import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def uncompiled() -> AbstractContextManager[object]:
    """Within, functions and modules of ``torch.compile`` run eagerly.

    It belongs around every dispatch mode that sees users' code: under one the compiler does not only leave out the
    call, it marks the code, which then stays eager for good. Globals of the compiler that such code reads are among
    what :func:`trial_call` puts back, so this is entered before it.
    """
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and importing it takes seconds
        return nullcontext()
    forced: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return forced


def module_within(module: nn.Module) -> nn.Module:
    """What ``torch.compile(module)`` has wrapped; the module itself where it is no such wrapper.

    Asked of what is registered, since a model may answer to any name that it is asked for.

    >>> module_within(nn.ReLU())
    ReLU()
    """
    return dict(module._modules).get("_orig_mod") or module
