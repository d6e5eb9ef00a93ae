import torch
from helpers.lightning_training import Classifier, loaders
from torch.utils.data import DataLoader

from brim.engine.components.precision import Precision
from brim.integrations.lightning.modules.batch_transfer import BatchTransfer
from brim.integrations.lightning.modules.loop_state import TRAIN, LoopState
from brim.integrations.lightning.modules.module_log import ModuleLog
from brim.integrations.lightning.modules.validation import Validation, loaders_in
from brim.replaced import replaced


def validation_of(module, given, limit=None):
    loop = LoopState(module)
    log = ModuleLog(loop, lambda batch: len(batch[0]))
    made = Validation(loop, log, given, BatchTransfer(module, None), limit)
    made.precision = Precision("32", torch.device("cpu"))
    return made, replaced((module, "log", log.log))


def test_the_first_batches_tell_which_metric_decides_and_leave_nothing_behind():
    made, logging = validation_of(Classifier(), [loaders()[1]])
    with logging:
        made.try_out(made.loop.module)
    assert (made.monitor, made.higher_is_better) == ("val_loss", False)
    assert made.loop.metrics == {} and made.loop.stage == TRAIN and made.loop.module.training


def test_a_validation_that_logs_nothing_still_has_a_number():
    class Silent(Classifier):
        def validation_step(self, batch, batch_idx):
            pass

    made, logging = validation_of(Silent(), [loaders()[1]])
    with logging:
        assert made.evaluate(made.loop.module) == {"batches": 3.0}


def test_a_limit_counts_batches_of_each_loader():
    class Counts(Classifier):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log("seen", 1.0, reduce_fx="sum", add_dataloader_idx=False)

    made, logging = validation_of(Counts(), [loaders()[1], loaders()[1]], limit=2)
    with logging:
        assert made.evaluate(made.loop.module) == {"seen": 4.0}


def test_loaders_are_told_from_batches():
    loader = DataLoader([1.0])
    assert loaders_in([loader, loader]) == [loader, loader] and loaders_in(None) == []
    batches = [torch.zeros(2), torch.zeros(2)]
    assert loaders_in(batches) == [batches] and loaders_in(loader) == [loader]
