"""Applies cures before a script begins."""

from brim.doctor.order import Cures


def apply_cures(cures: Cures) -> None:
    """Change how this process makes loaders and optimizers."""
    if cures.are_none:
        return
