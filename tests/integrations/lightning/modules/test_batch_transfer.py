import lightning as L
from helpers.lightning_training import Classifier

from brim.integrations.lightning.modules.batch_transfer import BatchTransfer

Data = type("Data", (L.LightningDataModule,), {"on_after_batch_transfer": lambda self, batch, place: batch + 1})
Own = type("Own", (Classifier,), {"on_after_batch_transfer": lambda self, batch, place: batch + 2})


def test_the_data_modules_hook_comes_before_the_modules():
    assert BatchTransfer(Own(), Data()).after(Own(), 0, 0) == 1
    assert BatchTransfer(Own(), None).after(Own(), 0, 0) == 2


def test_without_a_hook_a_batch_stays_as_it_is():
    transfer = BatchTransfer(Classifier(), None)
    assert transfer.after(Classifier(), 0, 0) == 0 and not transfer.changes_batches
