"""Capture trap 6: after capturing anew the old graph is replayed, or a model stays rebound to it."""

import copy

import pytest
import torch
from torch import nn

import brim

pytestmark = pytest.mark.gpu


class Rebuild(brim.Callback):
    """Replaces the data of a layer's weights, by value and in another place of memory."""

    def on_epoch_end(self, trainer, epoch):
        weight = trainer.model[0].weight
        weight.data = weight.data.clone() * 0.5


def test_weights_that_were_put_elsewhere_are_those_that_are_trained(twins):
    eager, tried = twins(twins.mlp, twins.rows(), "auto", callbacks=lambda: [Rebuild()], epochs=4)
    assert tried.differs_from(eager) <= 1e-5


def test_loaded_weights_are_those_that_are_trained(twins):
    torch.manual_seed(9)
    other = twins.mlp().state_dict()

    def load(number, model, optimizer):
        if number == 30:
            model.load_state_dict(other)

    batches = [tuple(column[i : i + 32] for column in twins.rows()) for i in range(0, 640, 32)] * 3
    eager, tried = (twins.step_through(twins.mlp, batches, how, after=load) for how in ("off", "require"))
    assert tried.differs_from(eager) <= 1e-5


def test_a_model_trained_twice_is_captured_twice(twins):
    def fits(how):
        torch.manual_seed(1)
        model = twins.mlp()
        for number, loss_fn in enumerate((nn.MSELoss(), nn.L1Loss())):
            folder = twins.folder / f"{how}-{number}"
            data = brim.Loader(twins.rows(), 32)
            brim.Trainer(model, data, loss_fn=loss_fn, capture=how, epochs=2, lr=twins.LR, run_dir=folder).fit()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    eager, captured = fits("off"), fits("require")
    assert float((eager - captured).norm() / eager.norm()) <= 1e-5


def test_nothing_of_the_model_is_rebound(twins):
    captured = twins.train(twins.mlp, twins.rows(), "require")
    assert captured.is_accounted_for
    assert all("forward" not in vars(module) for module in captured.model.modules())
    twin = copy.deepcopy(captured.model).cpu()
    x = twins.rows(8)[0]
    assert torch.allclose(twin(x), captured.model(x.cuda()).cpu(), atol=1e-4)
