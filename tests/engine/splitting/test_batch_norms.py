"""A warning about BatchNorm is for those that compute with the batch: frozen ones do not, until somebody thaws them."""

import pytest
import torch
from torch import nn

import brim
from brim.engine.splitting.batch_norms import FrozenNorms, follows_batch, has_batch_norm

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


pytestmark = pytest.mark.usefixtures("own_folder")


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def fit(model, capsys, **settings):
    capsys.readouterr()
    settings = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.05), "micro_batch": 3, "epochs": 3, **settings}
    data = brim.Loader((X, Y), batch_size=8)
    brim.Trainer(model, data, loss_fn=nn.MSELoss(), device="cpu", threads=1, **settings).fit()
    return [line for line in " ".join(capsys.readouterr().err.split()).split("warning: ")[1:] if "BatchNorm" in line]


def frozen():
    model = net()
    model[1].eval()
    return model


class Thaw(brim.Callback):
    def on_epoch_start(self, trainer, epoch):
        if epoch == 2:
            trainer.model.train()


def test_a_norm_in_eval_mode_with_statistics_does_not_follow_the_batch():
    assert follows_batch(nn.BatchNorm1d(2)) and not follows_batch(nn.BatchNorm1d(2).eval())
    assert follows_batch(nn.BatchNorm1d(2, track_running_stats=False).eval())
    assert has_batch_norm(frozen())


def test_micro_batches_of_a_model_with_frozen_norms_are_those_of_the_batch_and_nothing_is_said(capsys):
    whole, parts = frozen(), frozen()
    assert fit(whole, capsys, micro_batch="auto") == [] and fit(parts, capsys) == []
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_others_are_warned_about_as_ever(capsys):
    assert len(fit(net(), capsys)) == 1


def test_a_norm_that_is_thawed_in_the_middle_is_told_of_once(capsys):
    told = fit(frozen(), capsys, callbacks=[Thaw()])
    assert len(told) == 1 and "a BatchNorm was thawed, and its statistics are those of micro-batches of 3" in told[0]


def test_norms_are_watched_until_they_are_thawed():
    model = frozen()
    norms = FrozenNorms(model)
    assert not norms.were_thawed()
    model.train()
    assert norms.were_thawed() and not norms.were_thawed()
