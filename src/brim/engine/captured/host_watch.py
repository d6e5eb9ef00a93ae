"""Looking between steps whether anybody has changed what the model computes: quickly, since there may be many."""

from typing import Any

from torch import nn

from brim.engine.captured.host_state import HOOKS, PLAIN, look_at, loss_state, what_changed

BASE = set(nn.Module().__dict__)  # what every module has: looked at in its own way


class HostWatch:
    """What a graph takes for fixed, as it was when the graph was captured."""

    def __init__(self, model: nn.Module, loss_fn: Any) -> None:
        self._modules = [_ModuleWatch(name or type(module).__name__, module) for name, module in model.named_modules()]
        self._loss_fn = loss_fn
        if isinstance(loss_fn, nn.Module):
            self._modules += [
                _ModuleWatch(f"loss_fn.{name}".rstrip("."), module) for name, module in loss_fn.named_modules()
            ]
            self._loss_fn = None
        self._of_loss = loss_state(self._loss_fn)

    def what_changed(self) -> str | None:
        """The name of the first thing that is not as it was."""
        for module in self._modules:
            changed = module.what_changed()
            if changed is not None:
                return changed
        return None if self._loss_fn is None else what_changed(self._of_loss, loss_state(self._loss_fn))


class _ModuleWatch:
    """One module: its plain attributes, where its tensors are, its parts and hooks; of a user's own, all the rest."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module
        self.own = own = module.__dict__
        self.count = len(own)
        self.plain = [key for key, value in own.items() if isinstance(value, PLAIN)]
        self.values = [own[key] for key in self.plain]
        is_torchs = type(module).__module__.startswith("torch.")
        self.others = [] if is_torchs else [key for key in own if key not in BASE and key not in self.plain]
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
