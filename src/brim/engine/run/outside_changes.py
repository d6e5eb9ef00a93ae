"""What code of the user's may have changed between two steps, and must not be taken for the same as before."""

from dataclasses import dataclass

from brim.engine.captured import CapturedStep
from brim.engine.run_state.thawed_parameters import UnshardedModel
from brim.engine.run_state.training_state import TrainingState


@dataclass
class OutsideChanges:
    """What is checked again once callbacks, hooks or evaluators have run."""

    state: TrainingState
    captured: CapturedStep | None = None  # the step, where it may be captured
    unsharded: UnshardedModel | None = None  # where the model that callbacks see is not the one that is trained
    is_saved: bool = False  # there is a checkpoint of the state of now

    def note_user_code(self) -> None:
        """Code of the user's has run, and may have changed what the model computes."""
        self.is_saved = False
        self.push_modes()
        if self.captured is not None:
            self.captured.suspect = True

    def push_modes(self) -> None:
        """Copy train and eval modes from the model that callbacks see to the sharded one that is trained."""
        if self.unsharded is not None:
            self.unsharded.push_modes(self.state.model)

    def pull_modes(self) -> None:
        """Copy them back, once a checkpoint was loaded."""
        if self.unsharded is not None:
            self.unsharded.pull_modes(self.state.model)
