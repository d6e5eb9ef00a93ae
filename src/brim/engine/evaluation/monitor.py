"""Which metric decides what is best, and in which direction it gets better."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from brim.arguments.choices import shorten
from brim.arguments.nearest import nearest
from brim.errors import ConfigError
from brim.record.key_numbers import is_higher_better

PREFIX = re.compile(r"^(?:val|valid|validation|eval|test|dev)[_\-. ]")  # before a metric, in Lightning and transformers
SHORT = {"acc": "accuracy", "f1_score": "f1", "ppl": "perplexity"}


@dataclass(frozen=True)
class Monitor:
    """A metric by its name among those of an evaluation."""

    name: str
    higher_is_better: bool


def choose_monitor(
    own: Monitor, monitor: str | None, mode: str | None, known: dict[str, bool | None], sets: Collection[str] = ()
) -> Monitor:
    """What the user asked to monitor, or what the evaluation data monitors by itself.

    Args:
        own: that of the evaluation data.
        monitor: the name that the user gave; None for the data's own.
        mode: ``"max"`` or ``"min"``; None to tell by the name.
        known: metrics that are known before the first evaluation, and whether higher is better where they say so.
        sets: names of evaluation sets, of which the first is meant where ``monitor`` names none.

    >>> choose_monitor(Monitor("loss", False), "accuracy", None, {})
    Monitor(name='accuracy', higher_is_better=True)
    """
    if monitor is not None and not isinstance(monitor, str):
        raise ConfigError(f"monitor={shorten(monitor)} must be the name of one metric, such as 'accuracy'")
    name = own.name if monitor is None else _full_name(monitor, sets)
    _check_known(name, known)
    if mode is not None:
        return Monitor(name, mode == "max")
    if name == own.name:
        return own
    higher = known.get(name)
    higher = is_higher_better(name) if higher is None else higher
    if higher is None:
        odd = "" if name in known else f"monitor={monitor!r} is none of {', '.join(known)}; where the loss returns it, "
        raise ConfigError(
            f"{odd}whether {monitor!r} is better when it is higher is not known; add mode='max' or mode='min'"
        )
    return Monitor(name, higher)


def _full_name(monitor: str, sets: Collection[str]) -> str:
    """The name with that of the evaluation set before it, as it is in the metrics."""
    name = monitor.removeprefix("eval/")
    if not sets or name.split("/")[0] in sets:
        return name
    return f"{next(iter(sets))}/{name}"


def _check_known(name: str, known: dict[str, bool | None]) -> None:
    """Refuse a misspelt name before the run; others may come from the loss or an evaluator, and are awaited."""
    if name in known:
        return
    meant = nearest_metric(name, known)
    if meant is not None:
        raise ConfigError(f"monitor={name!r} is not one of the metrics; did you mean {meant!r}?")


def nearest_metric(name: str, known: Collection[str]) -> str | None:
    """The metric that is meant by a name that is misspelt, or of another trainer: they put the data's before it.

    >>> nearest_metric("val_loss", ["loss", "accuracy"]), nearest_metric("valid_acc", ["loss", "accuracy"])
    ('loss', 'accuracy')
    >>> nearest_metric("kl", ["loss", "accuracy"])
    """
    folder, slash, own = name.rpartition("/")
    within = [one for one in known if one.rpartition("/")[0] == folder] or list(known)
    bare = PREFIX.sub("", own)
    for wanted in (folder + slash + bare, folder + slash + SHORT.get(bare, bare), bare, SHORT.get(bare, bare)):
        if wanted in known:
            return wanted
    return nearest(folder + slash + bare, within, 0.75)
