import warnings

import lightning as L
import pytest
from helpers.lightning_training import Classifier, loaders, train_ours
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks

from brim.errors import ConfigError
from brim.integrations.lightning.modules.refusals import (
    REFUSED,
    REFUSED_OF_DATA,
    check_callbacks_of,
    check_hooks,
    check_translatable,
)


@pytest.mark.parametrize("name", REFUSED)
def test_each_hook_without_a_counterpart_is_refused_by_its_name(name):
    kind = type("Own", (Classifier,), {name: lambda self, *arguments: None})
    with pytest.raises(ConfigError, match=f"Own.{name} is not translated: "):
        check_translatable(kind(), 1, False)


def test_a_hook_of_a_data_module_is_refused_too():
    kind = type("Data", (L.LightningDataModule,), {"transfer_batch_to_device": lambda self, *arguments: None})
    with pytest.raises(ConfigError, match=r"Data\.transfer_batch_to_device"):
        check_hooks(kind())


@pytest.mark.parametrize("name", REFUSED_OF_DATA)
def test_state_of_a_data_module_is_refused_and_that_of_a_module_is_not(name):
    kind = type("Data", (L.LightningDataModule,), {name: lambda self, *arguments: {}})
    with pytest.raises(ConfigError, match=f"Data.{name} is not translated: its loaders are made before"):
        check_hooks(kind())
    check_hooks(type("Own", (Classifier,), {name: lambda self, *arguments: {}})())


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return loaders()[0]

    def val_dataloader(self):
        return loaders()[1]


def noting_its_calls(kind, names):
    """A class of the same behaviour with each of these methods overridden, and the names of those that were called."""
    called = set()

    def noting(name):
        def method(self, *arguments, **named):
            called.add(name)
            return getattr(super(noted, self), name)(*arguments, **named)

        return method

    noted = type("Noted", (kind,), {name: noting(name) for name in names})
    return noted, called


def hooks_of(*kinds):
    named = {name for kind in kinds for name, one in vars(kind).items() if callable(one) and name[0] != "_"}
    # These two at once are refused; and Lightning wants either of these two.
    return sorted(named - {"on_after_batch_transfer", "configure_sharded_model"})


def test_every_hook_that_lightning_calls_is_called_or_refused(tmp_path):
    """Also one of a Lightning to come: it would be left out in silence."""
    in_module = [name for name in hooks_of(ModelHooks, DataHooks, CheckpointHooks) if name not in REFUSED]
    in_data = [name for name in hooks_of(DataHooks, L.LightningDataModule) if name not in REFUSED | REFUSED_OF_DATA]
    heard = []
    for fit in (_fit_theirs, train_ours):
        module, of_module = noting_its_calls(Classifier, in_module)
        data, of_data = noting_its_calls(Data, in_data)
        fit(module(), tmp_path, data, epochs=1)
        heard.append((of_module, of_data))
    (theirs, theirs_of_data), (ours, ours_of_data) = heard
    assert "on_train_epoch_end" in theirs and "setup" in theirs_of_data
    assert theirs - ours == set() and theirs_of_data - ours_of_data == set()


def _fit_theirs(module, folder, data, epochs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, default_root_dir=folder, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(module, data())


def test_optimization_by_hand_is_refused():
    module = Classifier()
    module.automatic_optimization = False
    with pytest.raises(ConfigError, match="optimizes by hand"):
        check_translatable(module, 1, False)


def test_a_module_without_its_steps_is_refused():
    with pytest.raises(ConfigError, match="has no training_step"):
        check_translatable(L.LightningModule(), 1, False)


def test_a_step_that_reads_batches_by_itself_is_refused():
    kind = type("Own", (Classifier,), {"training_step": lambda self, dataloader_iter: None})
    with pytest.raises(ConfigError, match="takes dataloader_iter"):
        check_translatable(kind(), 1, False)


def test_hooks_of_single_batches_are_refused_in_accumulation_windows():
    kind = type("Own", (Classifier,), {"on_train_batch_end": lambda self, *arguments: None})
    check_translatable(kind(), 1, False)
    with pytest.raises(ConfigError, match="the 4 batches of an accumulation window"):
        check_translatable(kind(), 4, False)


def test_hooks_that_see_gradients_are_refused_with_clipping():
    kind = type("Own", (Classifier,), {"on_before_optimizer_step": lambda self, optimizer: None})
    check_translatable(kind(), 1, False)
    with pytest.raises(ConfigError, match="before they are clipped in Lightning"):
        check_translatable(kind(), 1, True)


def test_callbacks_that_a_module_brings_are_refused():
    check_callbacks_of(Classifier())
    stopping = L.pytorch.callbacks.EarlyStopping("val_loss")
    kind = type("Own", (Classifier,), {"configure_callbacks": lambda self: [stopping]})
    with pytest.raises(ConfigError, match="brings an EarlyStopping"):
        check_callbacks_of(kind())
