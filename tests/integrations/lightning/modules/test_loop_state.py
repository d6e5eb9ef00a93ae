import pytest
from helpers.lightning_training import Classifier

from brim.integrations.lightning.modules.loop_state import LoopState


def test_only_hooks_that_the_user_wrote_are_called_and_known_by_their_name():
    loop = LoopState(Classifier())
    assert loop.call("on_fit_start") is None
    told = []
    loop.module.on_fit_start = lambda: told.append(loop.hook)
    loop.call("on_fit_start")
    assert told == ["on_fit_start"] and loop.hook == ""


def test_the_hook_is_left_where_it_fails():
    loop = LoopState(Classifier())
    with pytest.raises(ValueError), loop.within("training_step"):
        raise ValueError
    assert loop.hook == ""
