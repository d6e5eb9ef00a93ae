"""Forecasts of earlier runs, kept in the cache folder for runs in which nothing that decides them has changed."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import brim
from brim import memory
from brim.data import Batch, batch_length
from brim.data.cache.fingerprint import structure_fingerprint
from brim.engine.components.loss import LossFunction
from brim.hardware.host import cache_folder
from brim.memory.allocator.peak import Holder, find_peak
from brim.memory.forecast import Forecast, Setting
from brim.memory.planning.plan import Plan, Planner
from brim.whole_files import written_aside

MOST_KEPT = 256  # files of some kilobytes
NUMBERS = ("batch_size", "allocated", "reserved", "device", "gpus")
TEXTS = ("precision", "phase", "strategy")
HOLDER = {"size": int, "kind": str, "module": str, "operator": str, "line": str}
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class RememberedForecast:
    """The forecast of one batch of one model, if an earlier run has made it.

    Only that of a whole batch that fits, as it is without a limit: whether it fits now is looked at anew.
    """

    key: str
    setting: Setting
    batch_size: int

    @classmethod
    def of(
        cls,
        model: nn.Module,
        loss_fn: LossFunction | None,
        optimizer: Optimizer,
        example: Batch,
        setting: Setting,
        settings: tuple[Any, ...],
    ) -> "RememberedForecast | None":
        """By all that decides the memory of a step; None where that cannot be told from run to run."""
        versions = [torch.__version__, str(torch.version.cuda), brim.__version__, *installed_code()]
        modes = [torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()]
        try:
            things = (
                model, _shared(model), _strides(model), loss_fn, type(optimizer), _settings_of(optimizer), example,
                repr(setting), repr(settings), versions, repr(modes),
            )  # fmt: skip
            return cls(structure_fingerprint(*things), setting, batch_length(example))
        except Exception:  # users' objects say themselves what they consist of, and may fail at it
            return None

    @property
    def file(self) -> Path:
        return cache_folder() / f"forecast-{self.key}.json"

    def recall(self, planner: Planner) -> Plan | None:
        """The plan by what was remembered; None where there is nothing, or the batch may not fit now."""
        try:
            kept = json.loads(self.file.read_text(encoding="utf-8"))
            if kept["key"] != self.key or kept["digest"] != digest_of(kept["forecast"]):
                return None
            found = _forecast_of(kept["forecast"], self.setting)
        except UNREADABLE:
            return None
        return planner.plan_by(found) if found.batch_size == self.batch_size else None

    def keep(self, plan: Plan, planner: Planner) -> None:
        """Remember the forecast of a batch that fits at once, unless the limit has played a part in it."""
        family, extra = planner.family, self.setting.calibration.extra_reserved
        if family is None or plan.slices != 1:
            return
        unlimited = find_peak(family.trace(plan.batch_size), self.setting.expandable)
        if unlimited.reserved + extra != plan.forecast.reserved:
            return
        forecast = _as_json(plan.forecast)
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with written_aside(self.file) as aside:
                aside.write_text(json.dumps({"key": self.key, "digest": digest_of(forecast), "forecast": forecast}))
            _forget_oldest()
        except OSError:  # a home that cannot be written: made again next time
            pass


def _shared(model: nn.Module) -> list[int]:
    """For each parameter and buffer of each module, the first one that has the same memory: tied weights take it once,
    and are as code and shapes no others."""
    places: dict[int, int] = {}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return [places.setdefault(tensor.untyped_storage()._cdata, place) for place, (_, tensor) in enumerate(tensors)]


def _strides(model: nn.Module) -> list[tuple[int, ...]]:
    """How weights lie in memory, which kernels of convolutions are chosen by."""
    return [parameter.stride() for parameter in model.parameters()]


def _settings_of(optimizer: Optimizer) -> dict[str, Any]:
    """Those that a forecast makes its own optimizer with; the learning rate moves no memory."""
    group = optimizer.param_groups[0]
    return {name: type(value) if name == "lr" else value for name, value in group.items() if name in optimizer.defaults}


def installed_code() -> list[str]:
    """The forecast's own files by size and time: the rules may change between two versions of brim."""
    files = sorted(Path(memory.__file__).parent.rglob("*.py"))
    return [f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]


def digest_of(forecast: Any) -> str:
    """Of what is written down: a file that somebody has changed is not believed."""
    return hashlib.sha256(json.dumps(forecast, sort_keys=True).encode()).hexdigest()


def _as_json(made: Forecast) -> dict[str, Any]:
    """All of it but the card, which is a part of the key."""
    values = {name: value for name, value in asdict(replace(made, holders=())).items() if name != "card"}
    return {**values, "holders": [vars(holder) for holder in made.holders]}


def _forecast_of(kept: dict[str, Any], setting: Setting) -> Forecast:
    """Raises one of UNREADABLE for what no forecast could have left."""
    low, high = kept["device_band"]
    numbers = [*(kept[name] for name in NUMBERS), low, high, *kept["parts"].values()]
    if not all(type(number) is int for number in numbers) or not all(isinstance(kept[name], str) for name in TEXTS):
        raise ValueError("not what a forecast consists of")
    if not all(type(holder[name]) is kind for holder in kept["holders"] for name, kind in HOLDER.items()):
        raise ValueError("not what a forecast consists of")
    return Forecast(
        card=setting.card, device_band=(low, high), parts=dict(kept["parts"]),
        holders=tuple(Holder(**holder) for holder in kept["holders"]), notes=tuple(map(str, kept["notes"])),
        **{name: kept[name] for name in (*NUMBERS, *TEXTS)},
    )  # fmt: skip


def _forget_oldest() -> None:
    """The files that were written longest ago, beyond those that are kept."""
    files = sorted(cache_folder().glob("forecast-*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in files[MOST_KEPT:]:
        file.unlink(missing_ok=True)
