"""What torchmetrics objects of a module have counted, so that a try that ran out of memory does not count."""

from typing import Any

from torch import Tensor, nn

from brim.integrations.lightning.modules.module_log import is_metric

COUNTERS = ("_update_count", "_forward_cache", "_computed")


class MetricStates:
    """The states of all metrics in a module, taken before each step; ``failures`` counts the tries that failed."""

    def __init__(self, module: nn.Module) -> None:
        self._metrics: list[Any] = [part for part in module.modules() if is_metric(part)]
        self._taken: list[dict[str, Any]] = []
        self._failures = 0

    def take(self, failures: int) -> None:
        """Remember this moment."""
        self._failures = failures
        self._taken = [_state(metric) for metric in self._metrics]

    def put_back_after(self, failures: int) -> None:
        """Go back to that moment, where a try has failed since."""
        if failures == self._failures or not self._taken:
            return
        self._failures = failures
        for metric, state in zip(self._metrics, self._taken, strict=True):
            for name, value in state.items():
                object.__setattr__(metric, name, _copy(value))


def _state(metric: Any) -> dict[str, Any]:
    names = [*metric._defaults, *(name for name in COUNTERS if hasattr(metric, name))]
    return {name: _copy(getattr(metric, name)) for name in names}


def _copy(value: Any) -> Any:
    """A copy that the metric does not change: it adds to tensors in place, and to lists."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return list(value) if isinstance(value, list) else value
