"""A LightningModule in brim's loop, as it is: python examples/lightning_module.py

``L.Trainer(max_epochs=5).fit(module, train, valid)`` becomes ``train(module, train, valid, max_epochs=5)``: the same
weights, and a run that survives running out of memory, resumes in mid-epoch and says where its time went.
"""

import lightning as L
import torch
import torchmetrics
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from brim.integrations.lightning import train


class Classifier(L.LightningModule):
    def __init__(self, width: int = 32, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 3))
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        x, y = batch
        out = self.net(x)
        self.accuracy(out, y)
        self.log_dict({"val_loss": nn.functional.cross_entropy(out, y), "val_acc": self.accuracy}, prog_bar=True)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def make_loaders(samples: int = 900) -> tuple[DataLoader, DataLoader]:
    x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :3].argmax(1))
    train_data, valid_data = torch.utils.data.random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))
    return DataLoader(train_data, batch_size=32), DataLoader(valid_data, batch_size=64)


if __name__ == "__main__":
    L.seed_everything(0)
    print(train(Classifier(), *make_loaders(), max_epochs=5).metrics)
