"""After somebody else's code has run: nothing counts as saved, steps are looked at again, modes are taken over."""

from types import SimpleNamespace

from torch import nn

from brim.engine.run.outside_changes import OutsideChanges
from brim.engine.run_state.thawed_parameters import UnshardedModel


def with_copy() -> tuple[nn.Module, nn.Module, OutsideChanges]:
    seen, trained = nn.Sequential(nn.Linear(2, 1)), nn.Sequential(nn.Linear(2, 1))
    captured = SimpleNamespace(suspect=False)
    state = SimpleNamespace(model=trained)
    return seen, trained, OutsideChanges(state, captured, UnshardedModel(seen, trained), is_saved=True)


def test_what_may_have_changed_is_neither_saved_nor_replayed_unseen():
    _, _, changes = with_copy()
    changes.note_user_code()
    assert not changes.is_saved and changes.captured.suspect


def test_a_model_in_shards_has_the_modes_that_callbacks_give_to_the_one_they_see():
    seen, trained, changes = with_copy()
    seen[0].eval()
    changes.note_user_code()
    assert not trained[0].training and trained.training


def test_after_a_checkpoint_the_modes_are_those_of_the_trained_model():
    seen, trained, changes = with_copy()
    trained[0].eval()
    changes.pull_modes()
    assert not seen[0].training


def test_one_process_with_one_model_has_nothing_to_follow():
    changes = OutsideChanges(SimpleNamespace(model=None), is_saved=True)
    changes.push_modes()
    changes.pull_modes()
    assert changes.is_saved
