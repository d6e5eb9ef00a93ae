import re
import sys
from dataclasses import replace

import lightning as L
import pytest
import torch
from helpers.lightning_training import Classifier, loaders
from lightning.pytorch.loggers.logger import Logger

from brim.errors import CannotFit, ConfigError
from brim.integrations.lightning import BatchSizeForecast, BrimCallback
from brim.integrations.lightning.trainer import callback
from brim.integrations.lightning.trainer.callback import WatchedProfiler, settings_of

CARD = "NVIDIA H200"


class Kept(Logger):
    """Keeps what it is told."""

    name, version = "kept", 0

    def __init__(self):
        super().__init__()
        self.lines = []

    def log_hyperparams(self, *arguments, **named):
        pass

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, metrics))


def fit(added, module=None, package=L, logger=False, **settings):
    trainer = package.Trainer(
        max_epochs=2, accelerator="cpu", logger=logger, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[added], log_every_n_steps=1, **settings,
    )  # fmt: skip
    trainer.fit(module or Classifier(), *loaders())
    return trainer


def test_memory_and_shares_of_time_reach_the_loggers():
    logger = Kept()
    trainer = fit(BrimCallback(), logger=logger)
    told = [metrics for _, metrics in logger.lines if "share/data_wait" in metrics]
    assert len(told) == 6 and all({"share/compute", "share/rest"} <= metrics.keys() for metrics in told)
    for metrics in told:
        assert sum(value for name, value in metrics.items() if name.startswith("share/")) == pytest.approx(1, abs=1e-3)
    assert sys.platform != "linux" or all(metrics["memory_process"] > 0 for metrics in told)
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"


def test_a_forecast_for_a_card_by_name_is_told_before_the_first_step(capsys):
    watching = BrimCallback(card=CARD)
    fit(watching)
    assert watching.forecast is not None and watching.forecast.fits
    assert "memory forecast: a step with 8 samples takes" in capsys.readouterr().err


def test_the_weights_are_those_of_a_run_without_it():
    weights = []
    for one in (BrimCallback(card=CARD), L.pytorch.callbacks.Callback()):
        torch.manual_seed(1)
        module = Classifier()
        fit(one, module)
        weights.append(module.net[0].weight)
    assert torch.equal(*weights)


def test_a_step_that_will_not_fit_is_told_or_refused(capsys, monkeypatch):
    real = callback.forecast
    monkeypatch.setattr(callback, "forecast", lambda *given, **named: replace(real(*given, **named), reserved=1 << 50))
    fit(BrimCallback(card=CARD))
    assert re.search(
        r"takes 1[0-9.,]+ [GT]iB of the .* so it will not fit; batches of \d+ would", capsys.readouterr().err
    )
    with pytest.raises(CannotFit, match="so it will not fit"):
        fit(BrimCallback(card=CARD, refuse=True))


def test_a_forecast_that_fails_ends_no_run(capsys):
    class Reads(Classifier):
        def training_step(self, batch, batch_idx):
            self.trainer.fit_loop  # noqa: B018
            return super().training_step(batch, batch_idx)

    fit(BrimCallback(card=CARD), Reads())
    assert "memory forecast failed: " in capsys.readouterr().err


def test_what_the_forecast_does_not_know_is_said():
    class Trainer:
        strategy, precision = object(), "32-true"

    with pytest.raises(ConfigError, match="nothing is known of strategy object"):
        settings_of(Trainer(), None)


def test_an_error_leaves_the_trainers_own_profiler():
    class Fails(Classifier):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            raise ValueError("no")

    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[BrimCallback()],
    )  # fmt: skip
    with pytest.raises(ValueError, match="no"):
        trainer.fit(Fails(), *loaders())
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"


def test_it_serves_the_trainer_of_the_other_name():
    other = pytest.importorskip("pytorch_lightning")

    class Plain(other.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def training_step(self, batch, batch_idx):
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    watching = BrimCallback(card=CARD)
    fit(watching, Plain(), package=other)
    assert watching.forecast is not None


@pytest.mark.gpu
def test_shares_on_a_gpu_add_up_to_one():
    logger = Kept()
    trainer = L.Trainer(
        max_epochs=40, accelerator="gpu", devices=1, logger=logger, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[BrimCallback()], log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(Classifier(), loaders()[0])
    told = [metrics for _, metrics in logger.lines if "share/compute" in metrics]
    assert told and "share/copy" not in told[0]
    assert sum(v for k, v in told[-1].items() if k.startswith("share/")) == pytest.approx(1, abs=1e-3)


def test_an_unknown_argument_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean refuse="):
        BrimCallback(refuses=True)


class Profiler:
    def __init__(self):
        self.told = []

    def start(self, name):
        self.told.append(("start", name))

    def stop(self, name):
        self.told.append(("stop", name))

    def summary(self):
        return "summary"


def test_the_profiler_hears_everything_and_the_reading_is_told_apart():
    heard, inner = [], Profiler()
    watched = WatchedProfiler(inner, lambda: heard.append("asks"), lambda: heard.append("has"))
    with watched.profile("[_TrainingEpochLoop].train_dataloader_next"):
        heard.append("reads")
    with watched.profile("run_training_batch"):
        pass
    assert heard == ["asks", "reads", "has"] and len(inner.told) == 4 and watched.summary() == "summary"


@pytest.mark.parametrize("callback", [BrimCallback, BatchSizeForecast])
def test_a_card_that_nobody_knows_is_refused_when_the_callback_is_made(callback):
    with pytest.raises(ConfigError, match="no card is known as 'H2000'"):
        callback(card="H2000")
