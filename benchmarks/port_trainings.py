"""The trainings of the examples, for brim, for transformers.Trainer and for Lightning: nothing but the training.

Each function is handed the parts that all of them share (model, data, loss) and a clock to be called after each step.
What is counted as its length is what stands between its ``def`` and its end, without blank lines.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

import brim


@dataclass
class Parts:
    """What a training is made of, whoever trains. ``collate`` is None for samples that torch stacks."""

    model: nn.Module
    train: Any  # a data set of samples
    valid: Any
    loss: Callable[[nn.Module, Any], torch.Tensor]
    lr: float
    batch_size: int
    steps: int
    folder: str
    collate: Any = None


Clock = Callable[[int], None]


def with_brim(parts: Parts, clock: Clock) -> None:
    class Tick(brim.Callback):
        def on_step_end(self, trainer: Any, step: int, loss: torch.Tensor) -> None:
            clock(step)

    brim.Trainer(
        parts.model,
        brim.Loader(parts.train, batch_size=parts.batch_size, collate_fn=parts.collate, drop_last=True),
        brim.Loader(parts.valid, batch_size=parts.batch_size, collate_fn=parts.collate, shuffle=False),
        loss_fn=parts.loss,
        optimizer="AdamW",
        lr=parts.lr,
        max_steps=parts.steps,
        run_dir=parts.folder,
        callbacks=[Tick()],
    ).fit()


def with_transformers(parts: Parts, clock: Clock) -> None:
    class Tick(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            clock(state.global_step)

    settings = TrainingArguments(
        output_dir=parts.folder,
        per_device_train_batch_size=parts.batch_size,
        per_device_eval_batch_size=parts.batch_size,
        max_steps=parts.steps,
        learning_rate=parts.lr,
        lr_scheduler_type="constant",
        weight_decay=0.01,
        max_grad_norm=0.0,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=3,
        load_best_model_at_end=True,
        logging_steps=50,
        dataloader_drop_last=True,
        remove_unused_columns=False,
        report_to="none",
    )
    Trainer(
        parts.model,
        settings,
        train_dataset=parts.train,
        eval_dataset=parts.valid,
        data_collator=parts.collate,
        callbacks=[Tick()],
    ).train()


def with_lightning(parts: Parts, clock: Clock) -> None:
    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = parts.model

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = parts.loss(self.model, batch)
            self.log("loss", loss, prog_bar=True)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", parts.loss(self.model, batch), prog_bar=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=parts.lr)

        def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
            clock(self.global_step)

    best = lightning.pytorch.callbacks.ModelCheckpoint(parts.folder, monitor="val_loss", save_top_k=1, save_last=True)
    loaders = [
        DataLoader(parts.train, parts.batch_size, shuffle=True, drop_last=True, collate_fn=parts.collate),
        DataLoader(parts.valid, parts.batch_size, collate_fn=parts.collate),
    ]
    trainer = lightning.Trainer(
        max_steps=parts.steps,
        callbacks=[best],
        logger=lightning.pytorch.loggers.CSVLogger(parts.folder),
        enable_model_summary=False,
    )
    trainer.fit(Module(), *loaders)
    parts.model.load_state_dict(
        {
            name.removeprefix("model."): value
            for name, value in torch.load(best.best_model_path, weights_only=True)["state_dict"].items()
        }
    )
