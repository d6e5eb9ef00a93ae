"""Loader settings by the size of the card, for those who would rather not have them measured."""

from typing import TypedDict

from brim.errors import ConfigError


class LoaderSettings(TypedDict):
    """Keyword arguments of :class:`brim.Loader` and of torch's DataLoader."""

    num_workers: int
    prefetch_factor: int
    pin_memory: bool
    persistent_workers: bool


_WORKERS_AND_PREFETCH = {"8GB": (2, 2), "16GB": (4, 2), "24GB": (8, 4)}


def loader_preset(card: str) -> LoaderSettings:
    """The usual settings of a loader by the size of the card.

    Args:
        card: ``"8GB"``, ``"16GB"``, or ``"24GB"`` and more.

    Raises:
        ConfigError: for another text.

    >>> loader_preset("16GB")["num_workers"]
    4
    """
    name = card.upper().replace(" ", "").replace("GIB", "GB").rstrip("+")
    if name not in _WORKERS_AND_PREFETCH:
        raise ConfigError(f"there is no preset {card!r}; there are {', '.join(_WORKERS_AND_PREFETCH)}")
    workers, prefetch = _WORKERS_AND_PREFETCH[name]
    return LoaderSettings(num_workers=workers, prefetch_factor=prefetch, pin_memory=True, persistent_workers=True)
