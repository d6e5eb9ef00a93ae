"""What code of the user's may have changed between two steps, and must not be taken for the same as before."""

from dataclasses import dataclass

from brim.engine.captured import CapturedStep
from brim.engine.run_state.late_parameters import FrozenCopy
from brim.engine.run_state.training_state import TrainingState


@dataclass
class OutsideChanges:
    """All that is looked at again once callbacks, hooks or evaluators have run."""

    state: TrainingState
    captured: CapturedStep | None = None  # the step, where it may be captured
    frozen_copy: FrozenCopy | None = None  # where the model that callbacks see is not the one that is trained
    is_saved: bool = False  # there is a checkpoint of the state of now

    def suspect(self) -> None:
        """Somebody else's code has run, and may have changed what the model computes."""
        self.is_saved = False
        self.follow_modes()
        if self.captured is not None:
            self.captured.suspect = True

    def follow_modes(self) -> None:
        """Let the model that is trained have the modes of the one that callbacks see."""
        if self.frozen_copy is not None:
            self.frozen_copy.follow(self.state.model)

    def show_modes(self) -> None:
        """Let the model that callbacks see have the modes of the one that is trained, once a checkpoint was loaded."""
        if self.frozen_copy is not None:
            self.frozen_copy.lead(self.state.model)
