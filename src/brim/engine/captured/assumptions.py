"""What graphs take for fixed: which parameters are trained, the optimizer's settings, what the host keeps."""

from typing import Any

from torch import nn

from brim.engine.captured.host.host_watch import HostWatch
from brim.engine.captured.optimizers import settings_of
from brim.engine.components.loss import counted_in
from brim.engine.step.eager_step import EagerStep


class Assumptions:
    """What held when a graph was captured; each method returns what does not hold any more, or None."""

    def __init__(self, eager: EagerStep, model: nn.Module, loss_fn: Any) -> None:
        self._eager = eager
        self._parameters, self._modules = list(model.parameters()), list(model.modules())
        self._flags = self._flags_now()
        self._groups = eager.optimizer.param_groups
        self._settings = self._settings_now()
        self._host = HostWatch(model, loss_fn)

    def why_broken(self) -> str | None:
        """Compare what is quick to compare: flags of parameters and modules, settings of the optimizer."""
        if self._flags_now() != self._flags:
            return "a part of the model was frozen, thawed or switched between training and evaluation"
        if self._eager.optimizer.param_groups is not self._groups or self._settings_now() != self._settings:
            return "the settings of the optimizer changed"
        return None

    def why_broken_on_host(self) -> str | None:
        """Compare everything that the host keeps in Python."""
        changed = self._host.what_changed()
        return None if changed is None else f"{changed} changed"

    def _flags_now(self) -> list[bool]:
        return [p.requires_grad for p in self._parameters] + [module.training for module in self._modules]

    def _settings_now(self) -> list[Any]:
        counted = counted_in(self._eager.compute)
        rule = None if counted is None else counted.rules
        return [self._eager.skip_nonfinite, self._eager.clip_norm, rule, *settings_of(self._eager.optimizer)]
