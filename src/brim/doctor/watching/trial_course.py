"""The order of live trials: each setting for some steps, between steps without it."""

from statistics import mean

from brim.doctor.observation import LiveTrial
from brim.doctor.stages import Stage, trial_stage
from brim.doctor.watching.live_trials import Setting

WITHOUT = trial_stage("nothing")


class TrialCourse:
    """Changes settings from stage to stage, and keeps what each brought."""

    def __init__(self) -> None:
        self.done: list[LiveTrial] = []
        self._settings: list[Setting] = []
        self._changed: Setting | None = None
        self._before = self._with_it = 0.0

    def plan(self, settings: list[Setting], has_ceiling: bool) -> list[Stage]:
        """The stages that the settings take. The first comes after the ceiling's steps, or after others without it."""
        self._settings = list(settings)
        first = [] if has_ceiling or not settings else [WITHOUT]
        return first + [stage for setting in settings for stage in (trial_stage(setting.name), WITHOUT)]

    def stage_ended(self, step: float, following: Stage | None) -> None:
        """A stage took ``step`` seconds a step; ``following`` is about to begin."""
        if self._changed is not None:
            self._changed.end()
            self._with_it = step
        else:
            if self._with_it:
                setting = self._settings.pop(0)
                self.done.append(LiveTrial(setting.name, setting.value, self._with_it, mean((self._before, step))))
            self._before, self._with_it = step, 0.0
        self._changed = None
        if following is not None and following != WITHOUT and self._settings:
            self._changed = self._settings[0]
            self._changed.begin()
