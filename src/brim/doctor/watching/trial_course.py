"""The order of live trials: each setting for some steps, between steps without it, and all of that again."""

from brim.doctor.observation import LiveTrial
from brim.doctor.stages import Stage, trial_stage
from brim.doctor.watching.live_trials import Setting

WITHOUT = trial_stage("nothing")
ROUNDS = 2  # what else the machine does comes and goes: the better of two tells more


class TrialCourse:
    """Changes settings from stage to stage, and keeps what each brought."""

    def __init__(self) -> None:
        self._waiting: list[Setting] = []
        self._changed: Setting | None = None
        self._without: list[float] = []
        self._with: dict[tuple[str, int], list[float]] = {}

    def plan(self, settings: list[Setting], has_ceiling: bool) -> list[Stage]:
        """The stages that the settings take. The first comes after the ceiling's steps, or after others without it."""
        self._waiting = list(settings) * ROUNDS
        first = [] if has_ceiling or not settings else [WITHOUT]
        return first + [stage for setting in self._waiting for stage in (trial_stage(setting.name), WITHOUT)]

    def stage_ended(self, step: float, following: Stage | None) -> None:
        """A stage took ``step`` seconds a step; ``following`` is about to begin."""
        if self._changed is not None:
            self._changed.end()
            self._with.setdefault((self._changed.name, self._changed.value), []).append(step)
            self._changed = None
        else:
            self._without.append(step)
        if following is not None and following != WITHOUT and self._waiting:
            self._changed = self._waiting.pop(0)
            self._changed.begin()

    def done(self) -> tuple[LiveTrial, ...]:
        """What each setting brought, once steps without it followed it."""
        if len(self._without) < 2:
            return ()
        before = min(self._without)
        return tuple(LiveTrial(*setting, min(steps), before) for setting, steps in self._with.items())
