"""Capture trap 8: what the step computes changes in the middle of a run, and the graph does not."""

import pytest
import torch
from torch import nn

import brim

pytestmark = pytest.mark.gpu


class Switchable(nn.Module):
    """Has a second loss, a cache and a dropout that can be switched while it trains."""

    def __init__(self):
        super().__init__()
        self.inner, self.drop, self.outer = nn.Linear(16, 64), nn.Dropout(0.0), nn.Linear(64, 1)
        self.is_penalised, self.use_cache = False, True
        self.register_buffer("cache", torch.ones(16), persistent=False)

    def calculate_loss(self, batch):
        x, y = batch
        x = x * self.cache if self.use_cache else x * x.abs()
        loss = (self.outer(self.drop(self.inner(x).tanh())) - y).square().mean()
        return loss + self.inner.weight.abs().mean() if self.is_penalised else loss


def thaw(trainer):
    trainer.model.inner.requires_grad_(True)


def freeze(trainer):
    trainer.model.inner.requires_grad_(False)


def penalise(trainer):
    trainer.model.is_penalised = True


def stop_caching(trainer):
    trainer.model.use_cache = False


def fill_the_cache_anew(trainer):
    trainer.model.cache = torch.full_like(trainer.model.cache, 0.5)


def drop_more(trainer):
    trainer.model.drop.p = 0.5


def stop_dropping(trainer):
    trainer.model.drop.eval()


def replace_a_layer(trainer):
    trainer.model.outer = nn.Linear(64, 1, device=trainer.device)
    trainer.optimizer.add_param_group({"params": list(trainer.model.outer.parameters())})


def add_a_group(trainer):
    extra = nn.Parameter(torch.ones(16, device=trainer.device))
    del trainer.model.cache
    trainer.model.cache = extra
    trainer.optimizer.add_param_group({"params": [extra], "lr": 2.0**-6})


CHANGES = [
    thaw, freeze, penalise, stop_caching, fill_the_cache_anew, drop_more, stop_dropping, replace_a_layer, add_a_group
]  # fmt: skip


class Change(brim.Callback):
    def __init__(self, change):
        self.change = change

    def on_fit_start(self, trainer):
        if self.change is thaw:
            freeze(trainer)
        if self.change is stop_dropping:
            drop_more(trainer)

    def on_step_end(self, trainer, step, loss):
        if step == 40:
            torch.manual_seed(5)
            self.change(trainer)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_middle_is_followed(twins, change):
    settings = {"callbacks": lambda: [Change(change)], "loss_fn": None, "epochs": 5}
    unchanged = twins.train(Switchable, twins.rows(), "off", loss_fn=None, epochs=5)
    eager, tried = twins(Switchable, twins.rows(), "auto", **settings)
    assert tried.losses == pytest.approx(eager.losses, rel=1e-3)
    assert tried.differs_from(eager) <= 1e-5
    assert eager.losses[:40] != unchanged.losses[:40] or eager.losses[45:] != unchanged.losses[45:]
