"""The optimizer's step, without what torch puts around it for profilers and hooks where there is neither."""

from functools import cache
from types import CodeType

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

# What torch's wrapper is known to do: name the step for a profiler, and call hooks before and after it.
KNOWN_NAMES = frozenset({
    "cast", "Optimizer", "__class__", "__name__", "torch", "autograd", "profiler", "record_function", "chain", "values",
    "isinstance", "tuple", "len", "RuntimeError", "_optimizer_step_code", "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks", "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks",
})  # fmt: skip


def step_optimizer(optimizer: Optimizer) -> None:
    """``optimizer.step()``. For small models naming it for a profiler is a good part of its time.

    Anything that somebody may notice goes the usual way: hooks, a profiler, a step that a schedule or a user has
    replaced, and a torch whose wrapper does more than is known here.
    """
    step = type(optimizer).step
    if (
        getattr(step, "__code__", None) is known_wrapper()
        and "step" not in optimizer.__dict__
        and not (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)
        and not (_global_optimizer_pre_hooks or _global_optimizer_post_hooks)
        and not torch._C._autograd._profiler_enabled()
    ):
        step.__wrapped__(optimizer)  # type: ignore[attr-defined]
    else:
        optimizer.step()


@cache
def known_wrapper() -> CodeType | bool:
    """The code of the wrapper that torch makes of each optimizer's step; True, which is no code, for an unknown one."""
    code: CodeType = Optimizer.profile_hook_step(lambda optimizer: None).__code__
    # A library that puts its own wrapper there may bring what it does as variables of an enclosing function.
    return code if KNOWN_NAMES.issuperset(code.co_names) and code.co_freevars == ("func",) else True
