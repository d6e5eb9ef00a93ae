"""One call of fit leaves nothing open, wherever it breaks off."""

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
