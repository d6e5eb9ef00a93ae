"""The script's own modules through torch.compile, from their second step on."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from brim.doctor.cures.precision import in_fp32


def compile_after_first_step(bf16: bool = False) -> None:
    """Compile what the script calls for training, as it is found in the first step.

    That are the modules with parameters which it calls itself, not those that they call. Their first step is made as it
    is: what is hooked into calls of modules would be compiled with them, and is taken away before.

    Args:
        bf16: Whether they compute under autocast to bf16, which then is compiled with them.
    """
    watch = OutermostCalls()
    watch.install()
    done: list[bool] = []

    def compile_them(*_: Any) -> None:
        # Where a step gets a closure, the first forward pass comes within it.
        if done or not watch.called:
            return
        done.append(True)
        watch.remove()
        compile_modules(watch.called, bf16)

    register_optimizer_step_pre_hook(compile_them)


class OutermostCalls:
    """Notes which modules are called with gradients from outside of all others."""

    def __init__(self) -> None:
        self.called: list[nn.Module] = []
        self._depth = 0
        self._hooks: list[Any] = []

    def install(self) -> None:
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        if self._depth == 0 and torch.is_grad_enabled() and can_be_compiled(module):
            self.called += [] if any(module is one for one in self.called) else [module]
        self._depth += 1

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)


def can_be_compiled(module: nn.Module) -> bool:
    """Whether a module computes something with parameters, on one device, and is not compiled already.

    >>> can_be_compiled(nn.Linear(2, 2)), can_be_compiled(nn.MSELoss())
    (True, False)
    """
    if isinstance(module, nn.DataParallel | torch.jit.ScriptModule) or type(module).__name__ == "OptimizedModule":
        return False  # the last is what torch.compile(module) returns
    return module._compiled_call_impl is None and any(True for _ in module.parameters())


def compile_modules(modules: list[nn.Module], bf16: bool = False) -> None:
    """Compile modules in place, so that what the script holds of them is compiled, and their names stay."""
    from torch._inductor import config  # takes a second, in a process that compiles alone

    config.fallback_random = True  # dropout draws the numbers that it draws without compiling
    # Blocks that a backward pass computes again are called by themselves, and belong to a module that is compiled.
    inner = {id(part) for module in modules for part in module.modules() if part is not module}
    for module in modules:
        if id(module) not in inner:
            compile_in_place(module, bf16)


def compile_in_place(module: nn.Module, bf16: bool = False) -> None:
    """What ``module.compile()`` does, for torch's own classes too: frames of theirs are not compiled by themselves, but
    within one of another file."""
    kind = next(module.parameters()).device.type

    def call(*inputs: Any, **options: Any) -> Any:
        return module._call_impl(*inputs, **options)  # type: ignore[no-untyped-call]

    def call_in_bf16(*inputs: Any, **options: Any) -> Any:
        with torch.autocast(kind, torch.bfloat16):
            return in_fp32(call(*inputs, **options))

    module._compiled_call_impl = torch.compile(call_in_bf16 if bf16 else call)
