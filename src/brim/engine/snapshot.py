"""What a failed try would spoil, so that a step can be tried again: generators, moved buffers, the loss scale."""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brim.engine.precision import Precision

LARGE = 16 << 20  # bytes
WATCHED_STEPS = 3  # in which it shows whether a model draws from Python's and numpy's generators


class Snapshot:
    """Taken before every step, so it is made of what is cheap: two generators, and buffers that may have moved.

    Parameters are not in it: nothing but the optimizer changes them, and its step is never tried again. Python's and
    numpy's generators are in it where the first steps drew from them: their states cost more than a small step.
    """

    def __init__(self, model: nn.Module | None, precision: Precision) -> None:
        self._precision = precision
        self._cuda = _cuda_generator(precision.device)
        self._buffers = [] if model is None else [_Buffer(module, name) for module, name in _buffers_of(model)]
        self._cpu_state = torch.get_rng_state()
        self._cuda_state: tuple[int, int] = (0, 0)
        self._others: Any = None
        self._takes = 0
        self._draws_elsewhere = False

    def take(self) -> None:
        """Remember this moment."""
        self._cpu_state = torch.get_rng_state()
        if self._cuda is not None:
            self._cuda_state = (self._cuda.initial_seed(), self._cuda.get_offset())
        if self._takes <= WATCHED_STEPS or self._draws_elsewhere:
            self._take_others()
        if self._buffers:
            moved = [buffer for buffer in self._buffers if buffer.may_have_moved()]
            is_first, self._takes = self._takes == 0, self._takes + 1
            _copy_all([buffer for buffer in moved if buffer.prepare_copy(is_first)], to_copies=True)
        else:
            self._takes += 1

    def _take_others(self) -> None:
        states = (random.getstate(), np.random.get_state(legacy=False))
        if self._others is not None and not _alike(states, self._others):
            self._draws_elsewhere = True
        self._others = states if self._takes < WATCHED_STEPS or self._draws_elsewhere else None

    def forget_buffers(self) -> None:
        """Keep no copies, and none of the tensors themselves: there is no memory for them, or they are gone."""
        for buffer in self._buffers:
            buffer.forget()

    def put_buffers_back(self, where: Tensor) -> None:
        """The buffers of before, if ``where`` says so: a step that was left out must leave nothing in statistics."""
        for buffer in self._buffers:
            if buffer.copy is not None and buffer.tensor is not None:
                with torch.no_grad():
                    kept = buffer.copy.to(buffer.tensor.device)
                    buffer.tensor.copy_(torch.where(where.to(buffer.tensor.device), kept, buffer.tensor))

    def restore(self) -> None:
        """Go back to that moment, as often as needed."""
        torch.set_rng_state(self._cpu_state)
        if self._cuda is not None:
            self._cuda.manual_seed(self._cuda_state[0])
            self._cuda.set_offset(self._cuda_state[1])
        if self._others is not None:
            random.setstate(self._others[0])
            np.random.set_state(self._others[1])
        _copy_all([buffer for buffer in self._buffers if buffer.put_back()], to_copies=False)
        self._precision.forget_unscaling()


class _Buffer:
    """One buffer of a module, by its place: what stands there may be another tensor after a step."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module = module
        self.name = name
        # The kernels of BatchNorm write its statistics without counting it as a change.
        self.moves_unseen = isinstance(module, nn.modules.batchnorm._BatchNorm)
        self.tensor: Tensor | None = None
        self.copy: Tensor | None = None
        self.version = -1

    @property
    def current(self) -> Tensor | None:
        return self.module._buffers.get(self.name)

    def may_have_moved(self) -> bool:
        now = self.current
        if now is None or now.is_meta or now.is_inference():
            self.forget()
            return False
        return self.moves_unseen or now is not self.tensor or now._version != self.version

    def prepare_copy(self, is_first: bool) -> bool:
        """Note what stands there now; True where it is to be copied.

        The first copy of a large one stays off the device, since it probably never moves (a table, a mask). A cache is
        not copied at all: whoever fills it can fill it anew.
        """
        now = self.current
        assert now is not None
        self.tensor, self.version = now, now._version
        if is_first and self.name in getattr(self.module, "cache_buffers", ()):
            return False
        if self.copy is None or self.copy.shape != now.shape or self.copy.dtype != now.dtype:
            is_large = is_first and now.numel() * now.element_size() > LARGE
            self.copy = torch.empty_like(now, device="cpu" if is_large else now.device)
        return True

    def put_back(self) -> bool:
        """Put the tensor of that moment back in its place; True where its content is to be copied back too."""
        if self.tensor is None:
            return False
        if self.current is not self.tensor:
            self.module._buffers[self.name] = self.tensor
        return self.copy is not None and (self.moves_unseen or self.tensor._version != self.version)

    def forget(self) -> None:
        self.tensor = self.copy = None
        self.version = -1


def _copy_all(buffers: list[_Buffer], to_copies: bool) -> None:
    """Many at once, by type: one launch for all the statistics of a model's norms."""
    alike: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for buffer in buffers:
        assert buffer.tensor is not None and buffer.copy is not None
        tensors, copies = alike[buffer.tensor.dtype, buffer.copy.device]
        tensors.append(buffer.tensor)
        copies.append(buffer.copy)
    with torch.no_grad():
        for tensors, copies in alike.values():
            torch._foreach_copy_(*((copies, tensors) if to_copies else (tensors, copies)))
    if not to_copies:
        for buffer in buffers:
            assert buffer.tensor is not None
            buffer.version = buffer.tensor._version


def _buffers_of(model: nn.Module) -> list[tuple[nn.Module, str]]:
    seen: set[int] = set()
    found = []
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is None or id(buffer) not in seen:
                seen.add(id(buffer))
                found.append((module, name))
    return found


def _alike(one: Any, other: Any) -> bool:
    (python, numpys), (python_then, numpys_then) = one, other
    now, then = numpys["state"], numpys_then["state"]
    return bool(python == python_then and now["pos"] == then["pos"] and np.array_equal(now["key"], then["key"]))


def _cuda_generator(device: torch.device) -> torch.Generator | None:
    if device.type != "cuda":
        return None
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
