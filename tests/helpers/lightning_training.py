"""The same LightningModule trained by lightning.Trainer and by brim, from the same weights and random numbers."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from brim.engine import Result
from brim.integrations.lightning import train

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long() + (X[:, 0] > 0.5).long()


def loaders(samples: int = 22, batch_size: int = 8) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """A shuffled one and one in order; both draw from generators of their own, as nobody else does.

    The last batch is not full: of full ones alone Lightning does not ask whether there are more, and torch's sampler
    draws once more where it is asked.
    """
    data = TensorDataset(X[:samples], Y[:samples])
    shuffled = DataLoader(data, batch_size, shuffle=True, generator=torch.Generator().manual_seed(3))
    return shuffled, DataLoader(data, 10, generator=torch.Generator())


class Classifier(L.LightningModule):
    """What most tutorials show: a net with BatchNorm and dropout, logged losses, Adam."""

    def __init__(self, width: int = 8, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 3)
        )
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        self.log_dict({"val_loss": self.loss(out, y), "val_acc": (out.argmax(1) == y).float().mean()}, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


@dataclass
class Both:
    """What came of a module in Lightning's loop (``theirs``) and in brim's (``ours``)."""

    theirs: Any
    ours: Any
    metrics: dict[str, Any]
    result: Result

    def check(self) -> None:
        """The same bits everywhere, and the same metrics."""
        for name, value in self.theirs.state_dict().items():
            assert torch.equal(value, self.ours.state_dict()[name]), name
        for name, value in self.result.metrics.items():
            assert value == self.metrics[name].item(), name


def train_both(
    make: Callable[[], Any],
    folder: Path,
    data: Callable[[], Any] = loaders,
    epochs: int = 2,
    package: Any = L,
    **settings: Any,
) -> Both:
    """Train a copy of what ``make`` gives in each of the two loops; ``settings`` mean the same in both."""
    torch.manual_seed(1)
    theirs = make()
    ours = copy.deepcopy(theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(2)
        trainer = package.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, **settings,
        )  # fmt: skip
        trainer.fit(theirs, **_handed_over(data()))
        torch.manual_seed(2)
        result = train_ours(ours, folder, data, epochs, **settings)
    return Both(theirs, ours, dict(trainer.callback_metrics), result)


def train_ours(
    module: Any, folder: Path, data: Callable[[], Any] = loaders, epochs: int = 2, **settings: Any
) -> Result:
    """In brim's loop alone, on one thread: the machine is others' too."""
    settings = {"accelerator": "cpu", "threads": 1, "run_dir": folder / "run", "loggers": False, **settings}
    return train(module, **_handed_over(data()), max_epochs=epochs, **settings)


def _handed_over(data: Any) -> dict[str, Any]:
    if isinstance(data, tuple):
        return {"train_dataloaders": data[0], "val_dataloaders": data[1]}
    return {"datamodule": data}
