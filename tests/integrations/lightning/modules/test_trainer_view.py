import copy
import math

import pytest
import torch
from helpers.lightning_training import Classifier, loaders

from brim.errors import ConfigError
from brim.integrations.lightning.modules.loop_state import VALIDATE, LoopState
from brim.integrations.lightning.modules.trainer_view import TrainerView, ViewedRun


def view(warn=lambda sentence: None, **settings):
    run = ViewedRun(LoopState(Classifier()), settings, warn, train_dataloader=loaders()[0])
    return TrainerView(run), run


def test_the_length_of_a_run_is_known_before_it_begins():
    shown, _ = view(epochs=4, accumulate_grad_batches=2)
    assert (shown.num_training_batches, shown.estimated_stepping_batches, shown.max_epochs) == (3, 8, 4)
    assert view(epochs=4, max_steps=5)[0].estimated_stepping_batches == 5
    assert view(max_steps=5)[0].estimated_stepping_batches == 5 and view(max_steps=5)[0].max_epochs == -1
    shown, run = view(epochs=1)
    run.train_dataloader = iter([])
    assert shown.estimated_stepping_batches == math.inf


def test_counts_and_stages_are_those_of_the_course():
    shown, run = view(epochs=1)
    run.loop.epoch, run.loop.step, run.loop.stage = 3, 70, VALIDATE
    assert (shown.current_epoch, shown.global_step, shown.validating, shown.training) == (3, 70, True, False)
    assert shown.callback_metrics is run.loop.metrics and shown.is_global_zero and shown.world_size == 1


def test_what_has_no_counterpart_is_refused_by_its_name():
    shown, _ = view(epochs=1)
    with pytest.raises(ConfigError, match=r"reads self\.trainer\.fit_loop, which has no counterpart"):
        _ = shown.fit_loop
    assert not hasattr(shown, "fit_loop")
    with pytest.raises(ConfigError, match=r"sets self\.trainer\.limit_val_batches"):
        shown.limit_val_batches = 3


def test_collectives_of_a_strategy_are_refused_by_name():
    module = Classifier()
    module.trainer, _ = view(epochs=1)
    with pytest.raises(ConfigError, match=r"self\.trainer\.strategy\.\w+ \(self\.all_gather does\)"):
        module.all_gather(torch.ones(1))
    assert module.optimizers() == []


def test_there_is_no_logger_and_a_warning_says_so():
    told = []
    shown, _ = view(told.append, epochs=1)
    assert shown.logger is None and shown.loggers == [] and len(told) == 1


def test_a_copy_of_the_view_is_of_the_same_run():
    shown, _ = view(epochs=1)
    assert copy.deepcopy({"view": shown})["view"] is shown
