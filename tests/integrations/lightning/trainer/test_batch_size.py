import lightning as L
import pytest
from helpers.lightning_training import Classifier, X, Y, loaders
from torch.utils.data import DataLoader, TensorDataset

from brim.errors import ConfigError
from brim.integrations.lightning import BatchSizeForecast

CARD = "NVIDIA H200"


class Data(L.LightningDataModule):
    def __init__(self, batch_size=2):
        super().__init__()
        self.batch_size = batch_size
        self.save_hyperparameters()

    def train_dataloader(self):
        return DataLoader(TensorDataset(X, Y), self.batch_size)


def fit(callback, *data, module=None, **named):
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback],
    )  # fmt: skip
    trainer.fit(Classifier() if module is None else module, *data, **named)
    return trainer


def test_the_loader_is_made_with_the_largest_batch_that_fits():
    callback, data = BatchSizeForecast(CARD, memory="128MiB"), Data()
    trainer = fit(callback, datamodule=data)
    assert data.batch_size == data.hparams.batch_size == callback.found > 24
    assert trainer.global_step == 1


def test_no_more_than_was_asked_for(capsys):
    callback, data = BatchSizeForecast(CARD, most=12), Data()
    assert fit(callback, datamodule=data).global_step == 2
    assert data.batch_size == 12 and "batch_size is 12: the most that was asked for" in capsys.readouterr().err


def test_loaders_that_exist_already_are_refused():
    with pytest.raises(ConfigError, match="there is no batch_size to set"):
        fit(BatchSizeForecast(CARD), loaders()[0])


def test_a_loader_handed_to_fit_is_refused_though_the_module_could_make_one():
    class Makes(Classifier):
        def __init__(self):
            super().__init__()
            self.batch_size = 2

        def train_dataloader(self):
            return DataLoader(TensorDataset(X, Y), self.batch_size)

    assert fit(BatchSizeForecast(CARD, most=12), module=Makes()).global_step == 2
    with pytest.raises(ConfigError, match="a loader was handed to fit, and a batch_size set here"):
        fit(BatchSizeForecast(CARD, most=12), loaders()[0], module=Makes())


def test_an_unknown_argument_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean most="):
        BatchSizeForecast(mosts=8)
