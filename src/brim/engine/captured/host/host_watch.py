"""Whether anything changes on the host: within a step, which a graph would not repeat, or between steps."""

from collections.abc import Callable
from typing import Any

from torch import nn

from brim.data.randomness.generators import host_marks
from brim.engine.captured.host.host_state import (
    HOOKS,
    PLAIN,
    host_state,
    is_compared_by_identity,
    look_at,
    look_at_names,
    loss_belongings,
    what_changed,
)
from brim.engine.captured.report import Refusal
from brim.engine.sandbox.named_state import NamedState
from brim.engine.sandbox.python_state import OF_EVERY_MODULE


def check_host(model: nn.Module, loss_fn: Any, run: Callable[[], Any]) -> Any:
    """Run a few steps, and refuse if they changed anything on the host."""
    look = HostLook(model, loss_fn)
    result = run()
    why = look.why_not_repeated()
    if why is not None:
        raise Refusal(why)
    return result


class HostLook:
    """The host as it is before a step, to be asked after it what the step did there."""

    def __init__(self, model: nn.Module, loss_fn: Any) -> None:
        self._model, self._loss_fn = model, loss_fn
        self._before, self._drawn = host_state(model, loss_fn), host_marks()

    def why_not_repeated(self, of: str = "step") -> str | None:
        """What happened that a graph would not repeat, as a sentence; None where nothing did."""
        changed = what_changed(self._before, host_state(self._model, self._loss_fn))
        if changed is not None:
            return f"{changed} changes with every {of} on the host, which a graph would not repeat"
        if self._drawn != host_marks():
            return "the model draws random numbers on the host, and a graph would repeat the same ones"
        return None


class HostWatch:
    """What a graph takes for fixed, as it was when the graph was captured.

    It is looked at between steps, so it has to be quick: what most of it is (functions, classes, numbers) is compared
    all at once, and nothing is searched for again.
    """

    def __init__(self, model: nn.Module, loss_fn: Any) -> None:
        names = NamedState(model, loss_fn)
        is_module = isinstance(loss_fn, nn.Module)
        roots = [("", model), *names.modules, *([("loss_fn", loss_fn)] if is_module else [])]
        self._modules = [watch for label, root in roots for watch in _watches(label, root)]
        self._loss_fn = None if is_module else loss_fn
        values = [named.now() for named in names.named]
        is_quick = [isinstance(value, PLAIN) or is_compared_by_identity(value) for value in values]
        self._quick = [named for named, quick in zip(names.named, is_quick, strict=True) if quick]
        self._slow = [named for named, quick in zip(names.named, is_quick, strict=True) if not quick]
        self._belongings = names.belongings
        self._values, self._seen = self._quick_values(), self._look()

    def what_changed(self) -> str | None:
        """The name of the first thing that is not as it was."""
        for module in self._modules:
            changed = module.what_changed()
            if changed is not None:
                return changed
        values = self._quick_values()
        if values != self._values:
            pairs = zip(self._quick, values, self._values, strict=True)
            return next((named.label for named, one, other in pairs if one is not other and one != other), None)
        return what_changed(self._seen, self._look())

    def _quick_values(self) -> list[Any]:
        return [named.now() for named in self._quick]

    def _look(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        look_at_names(found, self._slow, self._belongings)
        for label, value in () if self._loss_fn is None else loss_belongings(self._loss_fn):
            look_at(found, label, value)
        return found


def _watches(label: str, root: nn.Module) -> "list[_ModuleWatch]":
    looked_at: dict[int, Any] = {}  # what several modules hold (a configuration) is looked at once
    return [
        _ModuleWatch(".".join(part for part in (label, name) if part) or type(module).__name__, module, looked_at)
        for name, module in root.named_modules()
    ]


class _ModuleWatch:
    """One module: its plain attributes, where its tensors are, its parts and hooks; of a user's own, all the rest."""

    def __init__(self, name: str, module: nn.Module, looked_at: dict[int, Any]) -> None:
        own, kind = module.__dict__, type(module)
        self._is_torchs = is_torchs = kind.__module__.startswith("torch.")
        self._name, self._own, self._class_attributes = name, own, vars(kind)
        self._plain = [key for key, value in own.items() if isinstance(value, PLAIN)]
        others = [] if is_torchs else [key for key in own if key not in OF_EVERY_MODULE and key not in self._plain]
        self._held = [key for key in others if id(own[key]) in looked_at]
        self._looked_into = [key for key in others if key not in self._held]
        looked_at.update({id(own[key]): own[key] for key in self._looked_into})
        shared = {} if is_torchs else vars(kind)
        self._shared = [key for key, value in shared.items() if isinstance(value, int | float)]
        # Kept, or others may come to be in their places.
        self._kept = [[own[key] for key in self._held], *module._parameters.values(), *module._buffers.values()]
        self._labels = [
            *[f"{name}.{key}" for key in self._plain],
            f"an attribute of {name}",
            f"the place of weights or buffers of {name}",
            f"the parts or hooks of {name}",
            *[f"{name}.{key}" for key in self._held],
            f"what {name} holds",
            f"an attribute of the class of {name}",
        ]
        self._before = self._now()

    def what_changed(self) -> str | None:
        try:
            now = self._now()
        except KeyError as error:
            return f"{self._name}.{error.args[0]}"
        if now == self._before:
            return None
        for label, one, other in zip(self._labels, self._before, now, strict=False):
            if one is not other and one != other:
                return what_changed(one, other) if isinstance(one, dict) else label
        return None

    def _now(self) -> list[Any]:
        """What is compared, one by one, in the order of the labels."""
        own = self._own
        places = [
            None if tensor is None else (tensor.data_ptr(), tensor.shape)
            for tensors in (own["_parameters"], own["_buffers"])
            for tensor in tensors.values()
        ]
        now = [own[key] for key in self._plain]
        now += len(own), places, [*map(id, own["_modules"].values()), *[len(own[hooks]) for hooks in HOOKS]]
        if self._is_torchs:  # most are
            return now
        looked_into: dict[str, Any] = {}
        for key in self._looked_into:
            look_at(looked_into, f"{self._name}.{key}", own[key])
        now += [id(own[key]) for key in self._held]
        now += looked_into, [self._class_attributes[key] for key in self._shared]
        return now
