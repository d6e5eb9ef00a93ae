import math

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.engine.control.plateau import follow_direction, follow_monitor
from brim.engine.evaluation.monitor import Monitor
from brim.engine.run_state.progress import Progress


def plateau(**settings):
    return ReduceLROnPlateau(torch.optim.SGD([torch.ones(1)], 0.1), **settings)


def test_the_default_mode_follows_a_metric_where_higher_is_better():
    made = plateau(threshold=0.2)
    told, is_warning = follow_direction(made, "accuracy", higher_is_better=True)
    assert (made.mode, made.best, made.mode_worse, made.threshold) == ("max", -math.inf, -math.inf, 0.2)
    assert "'accuracy'" in told and not is_warning


@pytest.mark.parametrize(("mode", "higher"), [("min", False), ("max", True)])
def test_a_mode_that_agrees_is_left_alone_without_a_word(mode, higher):
    made = plateau(mode=mode)
    assert follow_direction(made, "score", higher) == ("", False)
    assert made.mode == mode


def test_a_mode_that_the_user_said_stays_and_is_warned_about():
    made = plateau(mode="max")
    told, is_warning = follow_direction(made, "loss", higher_is_better=False)
    assert made.mode == "max" and is_warning and "mode='max'" in told


def test_one_of_a_run_that_is_continued_goes_on_from_the_best_evaluation():
    made = plateau()
    made.step(0.3)
    follow_direction(made, "accuracy", higher_is_better=True, best=0.7)
    assert (made.mode, made.best) == ("max", 0.7)


def test_one_that_has_seen_nothing_begins_with_nothing_whatever_was_best():
    made = plateau()
    follow_direction(made, "accuracy", higher_is_better=True, best=0.7)
    assert made.best == -math.inf
    made = plateau()
    made.step(0.3)
    follow_direction(made, "accuracy", higher_is_better=True)
    assert made.best == -math.inf


def test_another_metric_than_in_the_checkpoint_begins_anew_and_is_told():
    made, progress = plateau(), Progress(best=0.3, monitor="loss", higher_is_better=False)
    made.step(0.3)
    assert follow_monitor(progress, made, Monitor("accuracy", True))
    assert (made.mode, made.best, progress.best) == ("max", -math.inf, None)
    assert not follow_monitor(progress, made, Monitor("accuracy", True))
