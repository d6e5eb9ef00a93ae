"""What a failed try would spoil, so that a step can be tried again.

Generators; buffers of the model and of its criterion; parameters that move without a gradient (momentum encoders); the
loss scale.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from inspect import getattr_static
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from brim.data.randomness.generators import PythonGenerators
from brim.engine.components.loss_modules import modules_of
from brim.engine.components.precision import Precision
from brim.engine.state.sharded_tensors import is_sharded

LARGE, SMALL = 16 << 20, 64 << 10  # bytes of buffers and of frozen parameters whose first copy stays off the device
MOST_FROZEN = 1 << 30  # bytes of frozen parameters that are watched by their content
WATCHED_STEPS = 3  # in which it shows what a model draws from, counts and moves


class Snapshot:
    """Taken before every step, so it is made of what is cheap: two generators, and what was seen to move.

    Trained parameters are not in it: nothing but the optimizer changes them, and its step is never tried again. Frozen
    ones, and Python's and numpy's generators, are in it where the first steps moved them: their states cost more than a
    small step. Modules that ``loss_fn`` is or holds are in it as the model is.
    """

    def __init__(self, model: nn.Module | None, precision: Precision, loss_fn: Any = None) -> None:
        self._precision = precision
        self._cuda = _cuda_generator(precision.device)
        models = [] if model is None else [model]
        self._named = named_modules_of(models, loss_fn)
        self._tracked = [_Tracked(*place) for place in _places_in(self._named)]
        self._buffers = [module._buffers for module in self._named.values()]
        self._registered = sum(map(len, self._buffers))
        self._trained = [p for model in models for p in model.parameters() if p.requires_grad]
        self._trained_versions: list[int] = []
        self._cpu_state = torch.get_rng_state()
        self._cuda_state: tuple[int, int] = (0, 0)
        self._others: PythonGenerators | None = None
        self._takes = 0
        self._draws_elsewhere = False

    def take(self) -> None:
        """Remember this moment."""
        self._cpu_state = torch.get_rng_state()
        if self._cuda is not None:
            self._cuda_state = (self._cuda.initial_seed(), self._cuda.get_offset())
        if self._takes <= WATCHED_STEPS or self._draws_elsewhere:
            self._take_others()
        self._trained_versions = [parameter._version for parameter in self._trained]
        if self._has_new_buffers():
            self._registered = sum(map(len, self._buffers))
            self._tracked += self._new_buffers()
        if self._tracked:
            self._take_tensors(is_first=self._takes == 0)
        self._takes += 1

    def _has_new_buffers(self) -> bool:
        return sum(map(len, self._buffers)) != self._registered

    def _new_buffers(self) -> list["_Tracked"]:
        """Those that a forward pass has registered."""
        known = {(id(place.holder), place.name) for place in self._tracked}
        places = [_Tracked(*place) for place in _places_in(self._named)]
        return [place for place in places if not place.is_frozen and (id(place.holder), place.name) not in known]

    def _take_tensors(self, is_first: bool) -> None:
        if 0 < self._takes <= WATCHED_STEPS:
            for place in self._tracked:
                place.look_for_unseen_moves()
        if self._takes == WATCHED_STEPS:
            for place in self._tracked:
                place.stop_copying()
        moved = [place for place in self._tracked if place.find_move()]
        _copy_all([place for place in moved if place.prepare_copy(is_first)], to_copies=True)

    def _take_others(self) -> None:
        states = PythonGenerators.now()
        if self._others is not None and states.marks() != self._others.marks():
            self._draws_elsewhere = True
        self._others = states if self._takes < WATCHED_STEPS or self._draws_elsewhere else None

    def forget_buffers(self) -> None:
        """Keep no copies, and none of the tensors themselves: there is no memory for them, or they are gone."""
        for place in self._tracked:
            place.forget()

    def restore_buffers_if_nonfinite(self, loss: Tensor) -> None:
        """The buffers of before, if ``loss`` is not finite: a step that was left out must leave nothing in them."""
        is_bad = ~loss.isfinite()
        for place in self._tracked:
            place.put_back_if(is_bad)

    def restore(self) -> None:
        """Go back to that moment, as often as needed."""
        torch.set_rng_state(self._cpu_state)
        if self._cuda is not None:
            self._cuda.manual_seed(self._cuda_state[0])
            self._cuda.set_offset(self._cuda_state[1])
        if self._others is not None:
            self._others.restore()
        if self._takes <= WATCHED_STEPS:
            for place in self._tracked:
                place.look_for_unseen_moves()
        _copy_all([place for place in self._tracked if place.put_back()], to_copies=False)
        self._precision.forget_unscaling()

    def find_moves(self, written: Collection[int] = ()) -> dict[str, Tensor]:
        """What is not as it was when this was taken, by name, with what it has become; also what moves unseen.

        ``written``: memory that is known to have been written to, be it with the same numbers.
        """
        moved: dict[str, Tensor] = {}
        for place in self._tracked:
            place.look_for_unseen_moves()
            now = place.current
            if now is None or now.is_meta:
                continue
            if place.is_moved() or (written and now.untyped_storage().data_ptr() in written):
                moved[place.full_name] = now.detach().to("cpu", copy=True)
        return moved

    def registered_since(self) -> list[str]:
        """Names of buffers that are there since: they stay, for code may know by a flag of its own that they are."""
        return [place.full_name for place in self._new_buffers()] if self._has_new_buffers() else []

    def beyond_repair(self) -> list[str]:
        """What has moved since and has no copy to be put back from: names, for a sentence about it."""
        versions = zip(self._trained, self._trained_versions, strict=False)
        trained = ["a trained parameter"] if any(p._version != version for p, version in versions) else []
        return trained + [place.full_name for place in self._tracked if place.is_lost()]


class _Tracked:
    """A buffer, or a parameter without a gradient, by its place: what stands there may be another tensor later."""

    def __init__(
        self, path: str, module: nn.Module, holder: dict[str, Any], name: str, is_frozen: bool, is_large: bool
    ) -> None:
        self.module = module
        self.holder = holder
        self.name = name
        self.full_name = f"{path or type(module).__name__}.{name}"
        self.is_frozen = is_frozen  # a parameter: it probably never moves
        # The kernels of BatchNorm write its statistics without counting it as a change; so does whatever goes by .data.
        self.moves_unseen = isinstance(module, nn.modules.batchnorm._BatchNorm)
        self.has_moved = False
        self.is_only_watched = is_large  # by its version, without a copy
        self.tensor: Tensor | None = None
        self.copy: Tensor | None = None
        self.version = -1
        self.address = 0
        self.was_none = False  # a buffer that the first forward pass fills

    @property
    def current(self) -> Tensor | None:
        is_there = self.name in self.holder  # in that of a scripted module too, which is no dict and has no get
        tensor: Tensor | None = self.holder[self.name] if is_there else None
        return tensor

    @property
    def is_cache(self) -> bool:
        """Whether whoever fills it can fill it anew."""
        return self.name in getattr_static(self.module, "cache_buffers", ())

    def look_for_unseen_moves(self) -> None:
        """In the first steps: whether the content moved though nothing was counted as a change."""
        now = self.current
        if now is None or now is not self.tensor or self.copy is None or self.moves_unseen or self._is_marked(now):
            return
        if not torch.equal(self.copy, now.detach().to(self.copy.device)):
            self.moves_unseen = self.has_moved = True

    def _is_marked(self, now: Tensor) -> bool:
        return now._version != self.version or _address(now) != self.address

    def find_move(self) -> bool:
        """Note whether what stands there may have moved, and return it; what has no content is forgotten."""
        now = self.current
        if now is None or now.is_meta or now.is_inference():
            self.forget()
            self.was_none = now is None and self.name in self.holder and not self.is_cache
            return False
        moved = self.moves_unseen or now is not self.tensor or self._is_marked(now)
        if moved and self.tensor is not None:
            self.has_moved, self.is_only_watched = True, False
        return moved

    def prepare_copy(self, is_first: bool) -> bool:
        """Note what stands there now; True where it is to be copied.

        The first copy of a large one stays off the device, since it probably never moves (a table, a mask). A cache is
        not copied at all: whoever fills it can fill it anew.
        """
        now = self.current
        assert now is not None
        is_first = is_first or self.tensor is None
        self.tensor, self.version, self.address, self.was_none = now, now._version, _address(now), False
        if self.is_only_watched or (is_first and self.is_cache):
            return False
        if self.copy is None or self.copy.shape != now.shape or self.copy.dtype != now.dtype:
            size = now.numel() * now.element_size()
            is_large = is_first and size > (SMALL if self.is_frozen else LARGE)
            self.copy = torch.empty_like(now, device="cpu" if is_large else now.device, requires_grad=False)
        return True

    def stop_copying(self) -> None:
        """After the first steps: a frozen parameter that has not moved is watched without a copy."""
        if self.is_frozen and not self.has_moved:
            self.is_only_watched, self.copy = True, None

    def put_back(self) -> bool:
        """Put the tensor of that moment back in its place; True where its content is to be copied back too."""
        if self.was_none:
            self.holder[self.name] = None
        if self.tensor is None:
            return False
        if self.current is not self.tensor:
            self.holder[self.name] = self.tensor
        return self.copy is not None and (self.moves_unseen or self._is_marked(self.tensor))

    @torch.no_grad()
    def put_back_if(self, is_bad: Tensor) -> None:
        """Write the content of that moment into whatever tensor stands there now, decided on its device."""
        now = self.current
        if now is None:
            return
        if self.was_none:
            if is_bad:  # once: no device can take a tensor away
                self.holder[self.name] = None
        elif self.copy is not None and self.copy.shape == now.shape:
            now.copy_(torch.where(is_bad.to(now.device), self.copy.to(now.device), now))

    def is_moved(self) -> bool:
        """Whether it is another tensor, or has other numbers, than when it was noted."""
        now = self.current
        if now is not self.tensor or now is None:
            return now is not None and (self.tensor is not None or self.was_none)
        if self._is_marked(now):
            return True
        return self.moves_unseen and self.copy is not None and not torch.equal(self.copy, now.to(self.copy.device))

    def is_lost(self) -> bool:
        """Whether it moved and has no copy; caches are filled anew by whoever needs them."""
        return self.tensor is not None and self.copy is None and not self.is_cache and self._is_marked(self.tensor)

    def forget(self) -> None:
        self.tensor = self.copy = None
        self.version, self.was_none = -1, False


def _copy_all(buffers: list[_Tracked], to_copies: bool) -> None:
    """Many at once, by type: one launch for all the statistics of a model's norms."""
    alike: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for buffer in buffers:
        assert buffer.tensor is not None and buffer.copy is not None
        tensors, copies = alike[buffer.tensor.dtype, buffer.copy.device]
        tensors.append(buffer.tensor.detach())
        copies.append(buffer.copy)
    with torch.no_grad():
        for tensors, copies in alike.values():
            torch._foreach_copy_(*((copies, tensors) if to_copies else (tensors, copies)))
    if not to_copies:
        for buffer in buffers:
            assert buffer.tensor is not None
            buffer.version, buffer.address = buffer.tensor._version, _address(buffer.tensor)


def named_modules_of(models: list[nn.Module], loss_fn: Any) -> dict[str, nn.Module]:
    """Every module of a model, and of what its loss is or holds (a criterion, a teacher in a closure), by a name."""
    roots = dict.fromkeys([""], models[0]) if models else {}
    for name, root in modules_of(loss_fn, *models).items():
        roots[type(root).__name__ if name == "loss_fn" else name.removeprefix("loss_fn.")] = root
    found: dict[str, nn.Module] = {}
    for place, root in roots.items():
        for path, module in root.named_modules():
            name = ".".join(part for part in (place, path) if part) or type(module).__name__
            found.setdefault(name, module)
    return found


def _places_in(named: dict[str, nn.Module]) -> Iterator[tuple[str, nn.Module, dict[str, Any], str, bool, bool]]:
    """Buffers and frozen parameters, each tensor once; the last says whether copies would be too much."""
    seen: set[int] = set()
    frozen = 0
    for path, module in named.items():
        for name, buffer in module._buffers.items():
            if buffer is None or id(buffer) not in seen:
                seen.add(id(buffer))
                yield path, module, module._buffers, name, False, False
        for name, parameter in module._parameters.items():
            if parameter is None or parameter.requires_grad or id(parameter) in seen:
                continue
            if is_lazy(parameter) or is_sharded(parameter):
                continue  # what has no content yet; what FSDP gathers and lets go as it likes
            seen.add(id(parameter))
            frozen += parameter.numel() * parameter.element_size()
            yield path, module, module._parameters, name, True, frozen > MOST_FROZEN


def _address(tensor: Tensor) -> int:
    """Where its numbers are, if it is a plain tensor: ``parameter.data = ...`` is counted nowhere else."""
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    return tensor.data_ptr() if plain else 0


def _cuda_generator(device: torch.device) -> torch.Generator | None:
    if device.type != "cuda":
        return None
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
