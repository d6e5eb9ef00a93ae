"""The course of an observation: which steps are let go by, which are timed, sampled, profiled and replayed."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Stage:
    """Some steps in a row, watched in one way."""

    name: str
    least: int  # steps
    seconds: float  # that it should last
    most: int = 5000  # steps
    patience: float = 25.0  # seconds after which three steps are enough
    settled: int = 0  # steps at its end in which nothing may be compiled
    restarts: int = 0  # times that it begins anew where something is compiled in it

    def is_over(self, steps: int, seconds: float) -> bool:
        """Whether enough was seen.

        >>> timed = Stage("timed", least=10, seconds=4.0)
        >>> timed.is_over(12, 3.0), timed.is_over(12, 5.0)
        (False, True)
        """
        if steps >= self.most or (steps >= 3 and seconds >= self.patience):
            return True
        return steps >= self.least and seconds >= self.seconds


EACH_TOLD = 20  # steps: where a script hangs after a few, it is said after how many
WARM_UP, TIMED, SAMPLED, PROFILED, CEILING = "warm-up", "timed", "sampled", "profiled", "ceiling"

# Steps of a short script are few: each stage needs ten of them, and takes more where they are fast.
OBSERVE = (
    Stage(WARM_UP, least=5, seconds=1.5),
    Stage(TIMED, least=10, seconds=4.0),
    Stage(SAMPLED, least=10, seconds=4.0),
    # In ten steps of a fraction of a millisecond, one in which another process has the core would be most of the time.
    Stage(PROFILED, least=4, seconds=1.0, most=100),
    Stage(CEILING, least=13, seconds=3.0),
)
# Before and after a cure: nothing but times and losses. Compiling is no part of the steps that are timed: it is over
# after the first of some thousands, but for shapes that come later (the last batch of an epoch), which are few.
TRIAL = (
    Stage(WARM_UP, least=5, seconds=1.5, patience=60.0, settled=3),
    Stage(TIMED, least=10, seconds=3.0, restarts=4),
)


def at_pace(stages: tuple[Stage, ...], pace: float) -> tuple[Stage, ...]:
    """The same stages, shorter or longer; the steps that each needs stay.

    >>> [stage.seconds for stage in at_pace(TRIAL, 2.0)]
    [3.0, 6.0]
    """
    return tuple(replace(stage, seconds=stage.seconds * pace) for stage in stages)


def trial_stage(name: str) -> Stage:
    """A setting that is changed for some steps on batches that are there."""
    return Stage(f"trial {name}", least=6, seconds=0.5)
