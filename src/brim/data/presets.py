"""Loader settings by the size of the card, for those who would rather not have them measured."""

from dataclasses import dataclass
from typing import TypedDict

from brim.data.reading.workers import BatchCost, Budget
from brim.errors import ConfigError

GIB = 1 << 30
NEARLY = 0.9  # of its name: a card "of 24 GB" reports between 22 and 24 GiB


class LoaderSettings(TypedDict):
    """Keyword arguments of :class:`brim.Loader` and of torch's DataLoader."""

    batch_size: int
    num_workers: int
    prefetch_factor: int
    pin_memory: bool
    persistent_workers: bool


# Samples of a batch, workers, and batches that each of them prepares ahead.
_PRESETS = {"8GB": (4, 8, 2), "default": (8, 8, 4), "24GB": (16, 16, 8), "48GB": (32, 16, 8)}
_ALSO_CALLED = {"12GB": "default", "16GB": "default", "32GB": "24GB", "40GB": "24GB", "80GB": "48GB"}


def loader_preset(card: str) -> LoaderSettings:
    """The usual settings of a loader by the size of the card: batches of decoded files, read by workers.

    Args:
        card: ``"8GB"`` (batches of 4, 8 workers, 2 batches ahead), ``"default"`` or ``"16GB"`` (8, 8, 4), ``"24GB"``
            (16, 16, 8), or ``"48GB"`` and more (32, 16, 8).

    Raises:
        ConfigError: for another text.

    >>> loader_preset("16GB")["num_workers"]
    8
    """
    batch_size, workers, prefetch = _PRESETS[preset_name(card)]
    return LoaderSettings(
        batch_size=batch_size, num_workers=workers, prefetch_factor=prefetch, pin_memory=True, persistent_workers=True
    )


def preset_name(card: str) -> str:
    """The preset that ``card`` names.

    >>> preset_name("24 gib+"), preset_name("16GB")
    ('24GB', 'default')
    """
    name = str(card).upper().replace(" ", "").replace("GIB", "GB").rstrip("+")
    name = _ALSO_CALLED.get(name, "default" if name == "DEFAULT" else name)
    if name not in _PRESETS:
        raise ConfigError(f"there is no preset {card!r}; there are {', '.join(_PRESETS)}")
    return name


def preset_of_card(memory: int | None) -> str:
    """The name of the preset for a card with so many bytes; None for no card.

    >>> preset_of_card(int(23.6 * GIB)), preset_of_card(None)
    ('24GB', 'default')
    """
    if memory is None:
        return "default"
    if memory >= NEARLY * 48 * GIB:
        return "48GB"
    if memory >= NEARLY * 24 * GIB:
        return "24GB"
    return "8GB" if memory < NEARLY * 12 * GIB else "default"


@dataclass(frozen=True)
class FittedWorkers:
    """Workers and batches ahead that a machine has room for; ``limit`` is what keeps it from more, if anything."""

    workers: int
    prefetch: int
    limit: str | None = None


def fit_workers(workers: int, prefetch: int, batch: BatchCost, budget: Budget) -> FittedWorkers:
    """Cut ``workers`` down to what ``budget`` has room for; fewer batches ahead where else there were no worker.

    >>> fit_workers(8, 2, BatchCost(0.0, 0.0, 1000, 2), Budget(cores=2))
    FittedWorkers(workers=2, prefetch=2, limit='2 cores')
    """
    most, limit = budget.most_workers(batch, prefetch)
    if most >= workers:
        return FittedWorkers(workers, prefetch)
    while most == 0 and prefetch > 1:
        prefetch //= 2
        most = budget.most_workers(batch, prefetch)[0]
    return FittedWorkers(min(workers, most), prefetch, limit)
