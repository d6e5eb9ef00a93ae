import pytest
from helpers.lightning_training import Classifier

from brim.integrations.lightning.modules.course import Course


def test_only_hooks_that_the_user_wrote_are_called_and_known_by_their_name():
    course = Course(Classifier())
    assert course.call("on_fit_start") is None
    told = []
    course.module.on_fit_start = lambda: told.append(course.hook)
    course.call("on_fit_start")
    assert told == ["on_fit_start"] and course.hook == ""


def test_the_hook_is_left_where_it_fails():
    course = Course(Classifier())
    with pytest.raises(ValueError), course.within("training_step"):
        raise ValueError
    assert course.hook == ""
