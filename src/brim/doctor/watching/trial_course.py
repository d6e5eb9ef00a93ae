"""The order of live trials: each setting for some steps, between steps without it, and all of that again."""

from statistics import mean

from brim.doctor.observation import LiveTrial
from brim.doctor.stages import Stage, trial_stage
from brim.doctor.watching.live_trials import TriedSetting

WITHOUT = trial_stage("nothing")
ROUNDS = 2  # what else the machine does comes and goes: the better of two tells more


class TrialCourse:
    """Changes settings from stage to stage, and keeps what each brought."""

    def __init__(self) -> None:
        self._waiting: list[TriedSetting] = []
        self._changed: TriedSetting | None = None
        self._last: TriedSetting | None = None  # what was changed in the stage before
        self._before = 0.0  # the last stage without anything
        self._with: float | None = None  # the stage with a setting, until one without it has followed
        self._rounds: dict[tuple[str, int], list[tuple[float, float]]] = {}  # steps with a setting, and around that

    def plan(self, settings: list[TriedSetting], has_ceiling: bool) -> list[Stage]:
        """The stages that the settings take. The first comes after the ceiling's steps, or after others without it."""
        self._waiting = list(settings) * ROUNDS
        first = [] if has_ceiling or not settings else [WITHOUT]
        return first + [stage for setting in self._waiting for stage in (trial_stage(setting.name), WITHOUT)]

    def stage_ended(self, step: float, following: Stage | None) -> None:
        """A stage took ``step`` seconds a step; ``following`` is about to begin."""
        if self._changed is not None:
            self._changed.end()
            self._with = step
        else:
            if self._with is not None and self._last is not None:
                setting = (self._last.name, self._last.value)
                self._rounds.setdefault(setting, []).append((self._with, mean((self._before, step))))
            self._before, self._with = step, None
        self._last, self._changed = self._changed, None
        if following is not None and following != WITHOUT and self._waiting:
            self._changed = self._waiting.pop(0)
            self._changed.begin()

    def done(self) -> tuple[LiveTrial, ...]:
        """What each setting brought: the quickest of its rounds, beside the quickest of what was around them."""
        return tuple(
            LiveTrial(*setting, min(step for step, _ in rounds), min(around for _, around in rounds))
            for setting, rounds in self._rounds.items()
        )
