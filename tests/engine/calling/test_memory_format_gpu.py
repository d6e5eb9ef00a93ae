"""Channels last on a GPU: with cuDNN's kernels, fused optimizers, captured steps and from a checkpoint."""

import pytest
import torch
from torch import nn

import brim

pytestmark = pytest.mark.gpu
X, Y = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 4
FUSED = {"name": "AdamW", "fused": True}


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip


def trained(path, memory_format, resume=None, **settings):
    model = net()
    given = {"loss_fn": nn.CrossEntropyLoss(), "device": "cuda", "epochs": 12, "lr": 1e-3, "precision": "32-ieee"}
    data = brim.Loader((X, Y), batch_size=16, shuffle=True)
    trainer = brim.Trainer(model, data, memory_format=memory_format, run_dir=path, **{**given, **settings})
    trainer.fit(resume=resume)
    return model


def assert_close(one, other):
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_it_is_the_same_training_but_for_rounding(tmp_path, capture):
    plain = trained(tmp_path / "plain", "preserve", capture="off", optimizer=FUSED)
    other = trained(tmp_path / "other", "channels_last", capture=capture, optimizer=FUSED)
    assert other[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert_close(plain, other)


def test_a_run_goes_on_with_a_fused_optimizer_from_the_other_layout(tmp_path):
    class Stop(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 10:
                trainer.stop("for a while")

    whole = trained(tmp_path / "whole", "preserve", optimizer=FUSED)
    trained(tmp_path / "run", "preserve", optimizer=FUSED, callbacks=[Stop()])
    resumed = trained(tmp_path / "run", "channels_last", resume="auto", optimizer=FUSED)
    assert_close(whole, resumed)
