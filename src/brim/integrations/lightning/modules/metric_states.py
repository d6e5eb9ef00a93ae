"""What torchmetrics objects of a module have counted, so that a try that ran out of memory does not count."""

from typing import Any

from torch import Tensor, nn

from brim.data import move_data_to_device
from brim.integrations.lightning.modules.module_log import is_metric

COUNT = "_update_count"
COUNTERS = (COUNT, "_forward_cache", "_computed")


class MetricStates:
    """The states of all metrics in a module, taken before each step; ``failures`` counts the tries that failed."""

    def __init__(self, module: nn.Module) -> None:
        self._named: dict[str, Any] = {name: part for name, part in module.named_modules() if is_metric(part)}
        self._metrics = list(self._named.values())
        self._taken: list[dict[str, Any]] = []
        self._failures = 0

    @property
    def metrics(self) -> list[Any]:
        return self._metrics

    def plain(self) -> dict[str, Any]:
        """What a checkpoint keeps of them, by where they are in the module."""
        return {name: {**_values(metric), COUNT: metric._update_count} for name, metric in self._named.items()}

    def load(self, plain: dict[str, Any]) -> None:
        """Become what a checkpoint kept; of metrics that are no more, nothing."""
        for name, metric in self._named.items():
            for key, value in plain.get(name, {}).items():
                object.__setattr__(metric, key, move_data_to_device(value, metric.device))

    def snapshot(self, failures: int) -> None:
        """Remember this moment."""
        self._failures = failures
        self._taken = [_state(metric) for metric in self._metrics]

    def restore_after(self, failures: int) -> None:
        """Go back to that moment, where a try has failed since."""
        if failures == self._failures or not self._taken:
            return
        self._failures = failures
        for metric, state in zip(self._metrics, self._taken, strict=True):
            for name, value in state.items():
                object.__setattr__(metric, name, _copy(value))


def _state(metric: Any) -> dict[str, Any]:
    counters = {name: _copy(getattr(metric, name)) for name in COUNTERS if hasattr(metric, name)}
    return {**_values(metric), **counters}


def _values(metric: Any) -> dict[str, Any]:
    return {name: _copy(getattr(metric, name)) for name in metric._defaults}


def _copy(value: Any) -> Any:
    """A copy that the metric does not change: it adds to tensors in place, and to lists."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return list(value) if isinstance(value, list) else value
