import lightning as L
import pytest
from helpers.lightning_training import Classifier

from brim.errors import ConfigError
from brim.integrations.lightning.modules.refusals import REFUSED, check_callbacks_of, check_hooks, check_translatable


@pytest.mark.parametrize("name", REFUSED)
def test_each_hook_without_a_counterpart_is_refused_by_its_name(name):
    kind = type("Own", (Classifier,), {name: lambda self, *arguments: None})
    with pytest.raises(ConfigError, match=f"Own.{name} is not translated: "):
        check_translatable(kind(), 1, False)


def test_a_hook_of_a_data_module_is_refused_too():
    kind = type("Data", (L.LightningDataModule,), {"transfer_batch_to_device": lambda self, *arguments: None})
    with pytest.raises(ConfigError, match=r"Data\.transfer_batch_to_device"):
        check_hooks(kind())


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
    with pytest.raises(ConfigError, match="brings a EarlyStopping"):
        check_callbacks_of(kind())
