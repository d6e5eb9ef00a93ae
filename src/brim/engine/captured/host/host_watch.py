"""Looking between steps whether anybody has changed what the model computes: quickly, since there may be many."""

from typing import Any

from torch import nn

from brim.engine.captured.host.host_state import (
    HOOKS,
    PLAIN,
    is_compared_by_identity,
    look_at,
    loss_belongings,
    what_changed,
)
from brim.engine.captured.host.named_state import OF_EVERY_MODULE, Named, NamedState


class HostWatch:
    """What a graph takes for fixed, as it was when the graph was captured."""

    def __init__(self, model: nn.Module, loss_fn: Any) -> None:
        names = NamedState(model, loss_fn)
        self._modules = _watches("", model) + [one for label, root in names.modules for one in _watches(label, root)]
        if isinstance(loss_fn, nn.Module):
            self._modules += _watches("loss_fn", loss_fn)
        self._names = _NamesWatch(names, None if isinstance(loss_fn, nn.Module) else loss_fn)

    def what_changed(self) -> str | None:
        """The name of the first thing that is not as it was."""
        for module in self._modules:
            changed = module.what_changed()
            if changed is not None:
                return changed
        return self._names.what_changed()


def _watches(label: str, root: nn.Module) -> "list[_ModuleWatch]":
    looked_at: dict[int, Any] = {}  # what several modules hold (a configuration) is looked at once
    return [
        _ModuleWatch(".".join(part for part in (label, name) if part) or type(module).__name__, module, looked_at)
        for name, module in root.named_modules()
    ]


class _NamesWatch:
    """What the code names. Most of it are functions, classes and numbers, which are compared all at once."""

    def __init__(self, names: NamedState, loss_fn: Any) -> None:
        self._quick: list[Named] = []
        self._slow: list[Named] = []
        for named in names.named:
            value = named.now()
            (self._quick if isinstance(value, PLAIN) or is_compared_by_identity(value) else self._slow).append(named)
        self._values = self._now()
        self._belongings = names.belongings
        self._loss_fn = loss_fn
        self._seen = self._look()

    def _now(self) -> list[Any]:
        return [named.now() for named in self._quick]

    def what_changed(self) -> str | None:
        values = self._now()
        if values != self._values:
            pairs = zip(self._quick, values, self._values, strict=True)
            return next((named.label for named, one, other in pairs if one is not other and one != other), None)
        return what_changed(self._seen, self._look())

    def _look(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for named in self._slow:
            look_at(found, named.label, named.now())
        for label, value_of in self._belongings:
            look_at(found, label, value_of())
        if self._loss_fn is not None:
            for label, value in loss_belongings(self._loss_fn):
                look_at(found, label, value)
        return found


class _ModuleWatch:
    """One module: its plain attributes, where its tensors are, its parts and hooks; of a user's own, all the rest."""

    def __init__(self, name: str, module: nn.Module, looked_at: dict[int, Any]) -> None:
        self.name = name
        self.module = module
        self.own = own = module.__dict__
        self.count = len(own)
        self.plain = [key for key, value in own.items() if isinstance(value, PLAIN)]
        self.values = [own[key] for key in self.plain]
        is_torchs = type(module).__module__.startswith("torch.")
        others = [] if is_torchs else [key for key in own if key not in OF_EVERY_MODULE and key not in self.plain]
        self.others = [key for key in others if id(own[key]) not in looked_at]
        self.held = [(key, own[key]) for key in others if id(own[key]) in looked_at]
        looked_at.update({id(own[key]): own[key] for key in self.others})
        self.seen = self._look()
        kind = type(module)
        self.kind = None if is_torchs else kind
        self.shared = [] if is_torchs else [key for key, value in vars(kind).items() if isinstance(value, int | float)]
        self.shared_values = [vars(kind)[key] for key in self.shared]
        self.tensors = [*module._parameters.values(), *module._buffers.values()]  # kept, or their places may be reused
        self.places = self._places()
        self.parts = self._parts()

    def what_changed(self) -> str | None:
        own = self.own
        try:
            values = [own[key] for key in self.plain]
            if values != self.values:
                return next(
                    f"{self.name}.{k}" for k, a, b in zip(self.plain, values, self.values, strict=True) if a != b
                )
            if len(own) != self.count:
                return f"an attribute of {self.name}"
            if self._places() != self.places:
                return f"the place of weights or buffers of {self.name}"
            if self._parts() != self.parts:
                return f"the parts or hooks of {self.name}"
            for key, value in self.held:
                if own[key] is not value:
                    return f"{self.name}.{key}"
            if self.others:
                changed = what_changed(self.seen, self._look())
                if changed is not None:
                    return changed
            if self.shared and [vars(self.kind)[key] for key in self.shared] != self.shared_values:
                return f"an attribute of the class of {self.name}"
        except KeyError as error:
            return f"{self.name}.{error.args[0]}"
        return None

    def _look(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in self.others:
            look_at(found, f"{self.name}.{key}", self.own[key])
        return found

    def _places(self) -> list[Any]:
        own = self.own
        return [
            None if tensor is None else (tensor.data_ptr(), tensor.shape)
            for tensors in (own["_parameters"], own["_buffers"])
            for tensor in tensors.values()
        ]

    def _parts(self) -> list[int]:
        own = self.own
        return [*map(id, own["_modules"].values()), *[len(own[hooks]) for hooks in HOOKS]]
