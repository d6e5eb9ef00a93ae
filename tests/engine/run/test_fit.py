"""One call of fit trains on what the trainer has then, and leaves nothing open, wherever it breaks off."""

import json

import pytest
import torch
from torch import nn

import brim
from brim.engine.run import fit


def test_loggers_are_closed_where_the_folder_cannot_be_described(tmp_path, monkeypatch):
    closed = []

    class Logger:
        def write(self, step, epoch, numbers):
            pass

        def close(self):
            closed.append(self)

    def fails(*arguments, **facts):
        raise RuntimeError("no room")

    monkeypatch.setattr(fit, "describe_run", fails)
    data = [(torch.ones(2, 1), torch.ones(2, 1))]
    logger = Logger()
    trainer = brim.Trainer(
        nn.Linear(1, 1), data, loss_fn=nn.MSELoss(), device="cpu", loggers=logger, run_dir=tmp_path / "run"
    )
    with pytest.raises(RuntimeError, match="no room"):
        trainer.fit()
    assert closed == [logger]


def test_data_assigned_between_two_fits_is_what_the_next_one_trains_on(tmp_path):
    class Seen(brim.Callback):
        def on_evaluate(self, trainer, metrics):
            losses.append(metrics["loss"])

    losses = []
    first, second = ((torch.full((4, 1), value), torch.zeros(4, 1)) for value in (1.0, 2.0))
    model = nn.Linear(1, 1)
    trainer = brim.Trainer(
        model, first, eval_data=first, loss_fn=nn.MSELoss(), optimizer="SGD", lr=1e-9, device="cpu", callbacks=[Seen()],
        run_dir=tmp_path / "one",
    )  # fmt: skip
    trainer.fit()
    trainer.train_data, trainer.eval_data, trainer.run_dir = second, second, tmp_path / "two"
    result = trainer.fit()
    output = model(torch.tensor([[2.0]])).item()
    assert losses[-1] == pytest.approx(output**2)
    read = [line for line in (result.run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
    assert json.loads(read[0])["loss"] == pytest.approx(output**2)
