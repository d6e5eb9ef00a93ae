import pytest
import torch
from helpers.faults import At, Gate
from helpers.lightning_training import Classifier, train_ours
from torch import nn

from brim.errors import ConfigError


def test_leaving_out_the_rest_of_an_epoch_is_refused(tmp_path):
    class Leaves(Classifier):
        def on_train_batch_start(self, batch, batch_idx):
            return -1

    with pytest.raises(ConfigError, match="on_train_batch_start returned -1"):
        train_ours(Leaves(), tmp_path, epochs=1)


def test_outputs_of_a_batch_in_parts_are_its_loss_and_a_warning_says_so(tmp_path, capsys):
    class Watches(Classifier):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), Gate(At(2)), nn.Linear(8, 3))
            self.told = []

        def training_step(self, batch, batch_idx):
            return {"loss": super().training_step(batch, batch_idx), "size": len(batch[0])}

        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.told.append((len(batch[0]), sorted(outputs)))

    module = Watches()
    train_ours(module, tmp_path, epochs=1)
    assert module.told[0] == (8, ["loss", "size"]) and module.told[1] == (8, ["loss"])
    assert capsys.readouterr().err.count("on_train_batch_end is handed the loss of the whole batch") == 1


def test_what_a_module_adds_to_checkpoints_comes_back(tmp_path):
    class Keeps(Classifier):
        def __init__(self):
            super().__init__()
            self.seen = 0

        def on_train_epoch_end(self):
            self.seen += 1

        def on_save_checkpoint(self, checkpoint):
            checkpoint["seen"] = self.seen

        def on_load_checkpoint(self, checkpoint):
            self.seen = checkpoint["seen"] * 10

    train_ours(Keeps(), tmp_path, epochs=2)
    again = Keeps()
    train_ours(again, tmp_path, epochs=3, run_dir=None, resume=tmp_path / "run")
    assert again.seen == 21


def test_a_data_module_hears_of_an_error_and_the_optimizer_is_left_alone(tmp_path):
    import lightning as L
    from helpers.lightning_training import loaders

    class Data(L.LightningDataModule):
        def train_dataloader(self):
            return loaders()[0]

        def on_exception(self, exception):
            self.heard = exception

    class Fails(Classifier):
        def on_before_optimizer_step(self, optimizer):
            self.kept = optimizer
            raise RuntimeError("no")

    data, module = Data(), Fails()
    with pytest.raises(RuntimeError, match="no"):
        train_ours(module, tmp_path, lambda: data, epochs=1)
    assert str(data.heard) == "no" and not module.kept._optimizer_step_pre_hooks
    assert isinstance(module.kept, torch.optim.Adam)
