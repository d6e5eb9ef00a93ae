"""What a trainer's runs are put together by, for tests that look behind it."""

from brim import Trainer
from brim.engine.run.assembly import Assembly


def assembly_of(trainer: Trainer) -> Assembly:
    """Of a trainer that has not run yet."""
    return Assembly(trainer._evaluators, trainer._schedule, trainer.bounds, trainer.callbacks)
