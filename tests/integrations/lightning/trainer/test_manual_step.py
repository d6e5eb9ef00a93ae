import lightning as L
import pytest
import torch
from helpers.faults import Above, At, Gate
from helpers.lightning_training import Classifier, loaders
from torch import nn

from brim.errors import ConfigError
from brim.integrations.lightning import ManualStep


class ByHand(Classifier):
    def __init__(self, fails=None):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), Gate(fails or At()), nn.Linear(8, 3))

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        loss = self.loss(self(batch[0]), batch[1])
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        self.log("train_loss", loss)


class Guarded(ByHand):
    def on_train_start(self):
        self.step = ManualStep(self, lambda model, batch: model.loss(model(batch[0]), batch[1]))

    def training_step(self, batch, batch_idx):
        self.log("train_loss", self.step(batch))


def fit(module, **settings):
    trainer = L.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **{"max_epochs": 2, **settings},
    )  # fmt: skip
    torch.manual_seed(2)
    trainer.fit(module, loaders()[0])
    return trainer


def test_a_module_that_optimizes_by_hand_ends_with_the_same_bits_and_counts():
    torch.manual_seed(1)
    plain, guarded = ByHand(), Guarded()
    guarded.load_state_dict(plain.state_dict())
    trainers = fit(plain), fit(guarded)
    assert torch.equal(plain.net[0].weight, guarded.net[0].weight)
    assert trainers[0].global_step == trainers[1].global_step == 6
    assert trainers[0].callback_metrics["train_loss"] == trainers[1].callback_metrics["train_loss"]
    assert fit(Guarded(), max_steps=4).global_step == 4


def test_memory_that_runs_out_ends_no_run():
    module = Guarded(Above(4))
    assert fit(module).global_step == 6 and module.step.micro_batch == 4
    with pytest.raises(torch.OutOfMemoryError):
        fit(ByHand(Above(4)))


def test_it_is_for_optimization_by_hand_with_one_optimizer():
    with pytest.raises(ConfigError, match="is for automatic_optimization = False"):
        ManualStep(Classifier(), lambda model, batch: None)

    class Two(Guarded):
        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), 0.1), torch.optim.SGD(self.parameters(), 0.1)]

    with pytest.raises(ConfigError, match="there are 2 optimizers"):
        fit(Two())


def test_logging_within_the_loss_is_refused():
    class Logs(Guarded):
        def on_train_start(self):
            self.step = ManualStep(self, lambda model, batch: self.log("a", 1.0))

    with pytest.raises(ConfigError, match="would log tries that fail as well"):
        fit(Logs())


def test_the_loss_sees_the_counts_of_the_trainer():
    epochs = []

    class Reads(Guarded):
        def on_train_start(self):
            self.step = ManualStep(self, self.counted)

        def counted(self, model, batch):
            epochs.append((model.current_epoch, model.global_step))
            return model.loss(model(batch[0]), batch[1])

    fit(Reads())
    assert epochs[-1] == (1, 5)
