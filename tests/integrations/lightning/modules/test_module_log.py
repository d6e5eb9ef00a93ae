import pytest
import torch
import torchmetrics
from helpers.lightning_training import Classifier

from brim.errors import ConfigError
from brim.integrations.lightning.modules.loop_state import LoopState
from brim.integrations.lightning.modules.module_log import Entry, ModuleLog, is_metric, levels, logged_name


def log_in(hook):
    loop = LoopState(Classifier())
    loop.batch = torch.zeros(4)
    loop.hook = hook
    return ModuleLog(loop, len)


def test_validation_numbers_are_means_over_samples_whatever_the_batches():
    log = log_in("validation_step")
    log.log("a", torch.tensor(1.0))
    log.log("a", torch.tensor(4.0), batch_size=8)
    log.log("least", torch.tensor(2.0), reduce_fx="min")
    assert {name: value.item() for name, value in log.end_validation().items()} == {"a": 3.0, "least": 2.0}


def test_numbers_of_steps_and_epochs_have_both_names_in_validation():
    log = log_in("validation_step")
    log.log("a", 1.0, on_step=True, on_epoch=True)
    assert set(log.end_validation()) == {"a", "a_epoch"}


def test_names_have_the_number_of_the_loader_where_there_are_several():
    log = log_in("validation_step")
    log.loop.dataloader_idx = 1
    log.log("a", 1.0)
    log.log("b", 1.0, add_dataloader_idx=False)
    assert set(log.end_validation()) == {"a/dataloader_idx_1", "b"}


@pytest.mark.parametrize("hook", ["on_fit_start", "setup", ""])
def test_logging_where_lightning_allows_none_is_refused(hook):
    with pytest.raises(ConfigError, match="is not possible in"):
        log_in(hook).log("a", 1.0)


def test_a_number_of_an_epoch_is_none_of_a_step():
    with pytest.raises(ConfigError, match="is a number of its epoch"):
        levels("on_train_epoch_end", "a", True, None)


@pytest.mark.parametrize("value", ["text", {"a": 1.0}, None])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ConfigError, match=f"got a {type(value).__name__}"):
        log_in("validation_step").log("a", value)


def test_only_means_can_be_logged_by_a_step_that_may_be_computed_in_parts():
    with pytest.raises(ConfigError, match="of which only means add up"):
        log_in("training_step").log("a", 1.0, reduce_fx="max")


def test_a_metric_that_is_no_part_of_the_module_is_refused():
    with pytest.raises(ConfigError, match="is no attribute of the module"):
        log_in("validation_step").log("a", torchmetrics.MeanMetric())


def test_a_metric_of_many_numbers_is_refused():
    log = log_in("validation_step")
    log.loop.module.matrix = torchmetrics.ConfusionMatrix("binary")
    log.loop.module.matrix.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    log.log("a", log.loop.module.matrix)
    with pytest.raises(ConfigError, match="more than one number"):
        log.end_validation()


def test_names_and_kinds():
    assert Entry("a", True, True, "mean").of_step == "a_step" and Entry("a", True, False, "mean").of_step == "a"
    assert logged_name("eval/a") == "module/eval/a" and not is_metric(torch.tensor(1.0))
