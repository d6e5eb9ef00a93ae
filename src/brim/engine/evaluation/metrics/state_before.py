"""The state of a metric of torchmetrics before an update, to be put back where the update fails half way."""

from typing import Any

from torch import Tensor

from brim.errors import CannotFit


class StateBefore:
    """What a metric held. A tensor that its updates replace is kept as it is; one that they write into, as a copy.

    Args:
        part: the metric.
        replaced: names of states that its last update did not write into.
    """

    def __init__(self, part: Any, replaced: frozenset[str] = frozenset()) -> None:
        self.part, self.replaced = part, replaced
        self.count, self.computed = part._update_count, part._computed
        self.held: dict[str, Any] = {name: getattr(part, name) for name in part._defaults}
        self.kept = {name: value if name in replaced else _copied(value) for name, value in self.held.items()}
        self.versions = {name: _version(value) for name, value in self.held.items()}

    def replaced_by_update(self) -> frozenset[str]:
        """Names of the states whose tensors the update left as they were."""
        return frozenset(name for name, version in self.versions.items() if self._is_intact(name, version))

    def put_back(self) -> None:
        """As before the update."""
        for name in self.replaced:
            if not self._is_intact(name, self.versions[name]):
                raise CannotFit(
                    f"the metric {type(self.part).__name__} failed while it wrote into its state {name!r}, which its "
                    "updates before had replaced; evaluate in smaller batches"
                )
        self.part._update_count, self.part._computed = self.count, self.computed
        for name, value in self.kept.items():
            setattr(self.part, name, value)

    def _is_intact(self, name: str, version: int | None) -> bool:
        return version is not None and _version(self.held[name]) == version


def copy_state(giver: Any, taker: Any) -> None:
    """The whole state of a metric, to one that has the same."""
    for name in giver._defaults:
        value = getattr(giver, name)
        setattr(taker, name, value if isinstance(value, Tensor) else list(value))
    taker._update_count, taker._computed = giver._update_count, None


def _copied(value: Any) -> Any:
    """Of lists only the list, since what is in them is not written to."""
    return value.clone() if isinstance(value, Tensor) else list(value)


def _version(value: Any) -> int | None:
    """How often a tensor was written to, where it can be told."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None
