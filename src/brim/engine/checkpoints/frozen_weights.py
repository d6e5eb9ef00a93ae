"""Which weights of a run do not move, so that checkpoints can refer to them instead of holding them again.

What may be such: parameters that want no gradient, whether the optimizer holds them or not, and large tensors of a
model that are no parameters. Whether somebody has moved them all the same (a teacher that follows the model, statistics
of norms, an edit in place) is looked at before every save, by all of their bytes: what is not as it was is in the
checkpoint itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from brim.engine.checkpoints.shared_files import FOLDER, Reference, SharedFiles
from brim.engine.state.fingerprint import fingerprints, has_fingerprint
from brim.engine.state.host_copy import HostModel, Storages, bytes_of, host_copy
from brim.errors import RunFolderError

SMALL = 1 << 20  # bytes: less than that in all is in every checkpoint, which is then a file that needs no other
LARGE_BUFFER = 1 << 16  # bytes: smaller tensors that are no parameters are not looked at


@dataclass(frozen=True)
class PartedWeights:
    """A model's weights at one moment: what is to be written with a checkpoint, and what is on disk already."""

    own: dict[str, Any]  # for the file of the checkpoint
    fresh: dict[str, Tensor] = field(default_factory=dict)  # for a shared file: they did not move since the last look
    shared: dict[str, Reference] = field(default_factory=dict)  # in a shared file already
    seen: dict[str, str] = field(default_factory=dict)  # the fingerprints of what is fresh

    def size(self) -> int:
        """Bytes that have to be written."""
        return bytes_of({**self.own, **self.fresh})

    def on_host(self) -> "PartedWeights":
        """The same with copies in host memory, which can be written while the model moves on."""
        storages: Storages = {}
        return replace(self, own=host_copy(self.own, storages), fresh=host_copy(self.fresh, storages))


class FrozenWeights:
    """Those of one run. Until :meth:`begin`, nothing is known not to move."""

    def __init__(self, checkpoints: Path) -> None:
        self.files = SharedFiles(checkpoints / FOLDER)
        self._model: Callable[[], nn.Module] | None = None
        self._seen: dict[str, str] = {}  # fingerprints at the last look
        self._stored: dict[str, tuple[str, Reference]] = {}  # what is in shared files, with its fingerprint

    def begin(self, model: Callable[[], nn.Module], weights: Mapping[str, Any]) -> None:
        """A run begins, with these weights. ``model`` tells at each save which of them are trained."""
        self._model = model
        self._seen = fingerprints(self._candidates(weights))

    def part(self, model: "nn.Module | HostModel") -> PartedWeights:
        """The weights of now. What has moved since it was put into a shared file is in each checkpoint from then on."""
        weights = dict(model.state_dict())
        candidates = self._candidates(weights)
        now = fingerprints(candidates)
        self._stored = {name: one for name, one in self._stored.items() if self.files.has(one[1])}
        shared = {name: place for name, (then, place) in self._stored.items() if now.get(name) == then}
        steady = {name for name, seen in now.items() if name not in self._stored and self._seen.get(name) == seen}
        fresh = {name: candidates[name] for name in candidates if name in steady}
        fresh = fresh if bytes_of(fresh) >= SMALL else {}
        self._seen = now
        own = {name: value for name, value in weights.items() if name not in shared and name not in fresh}
        return PartedWeights(own, fresh, shared, {name: now[name] for name in fresh})

    def store(self, weights: PartedWeights) -> dict[str, Reference]:
        """Put what is fresh into a shared file; returns where everything lies that is in none of the checkpoint's own.

        Called by whoever writes, between two calls of :meth:`part`.
        """
        if lost := [name for name, reference in weights.shared.items() if not self.files.has(reference)]:
            self._stored = {}
            raise RunFolderError(
                f"cannot write a checkpoint: the file with {lost[0]} was removed from {self.files.folder} meanwhile; "
                "the next one writes it again"
            )
        if not weights.fresh:
            return weights.shared
        stored = self.files.store(weights.fresh)
        self._stored.update({name: (weights.seen[name], reference) for name, reference in stored.items()})
        return {**weights.shared, **stored}

    def _candidates(self, weights: Mapping[str, Any]) -> dict[str, Tensor]:
        if self._model is None:
            return {}
        parameters = dict(self._model().named_parameters(remove_duplicate=False))
        found = {name: value for name, value in weights.items() if _may_stay(value, parameters.get(name))}
        return found if bytes_of(found) >= SMALL else {}


def _may_stay(value: Any, parameter: nn.Parameter | None) -> bool:
    """Whether an entry of a state_dict may be one that does not move, and can be compared."""
    if not isinstance(value, Tensor) or not has_fingerprint(value):
        return False
    return bytes_of(value) >= LARGE_BUFFER if parameter is None else not parameter.requires_grad
