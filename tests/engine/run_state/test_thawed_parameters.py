"""Layers that are thawed during a run are trained from then on, however the optimizer came about."""

import pytest
import torch
from helpers.weights import weights
from torch import nn

import brim

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X = torch.randn(40, 4)
Y = X.sin().sum(1, keepdim=True)


def net(frozen=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    for layer in (0, 2):
        model[layer].requires_grad_(not frozen)
    return model


class Thaw(brim.Callback):
    """One layer after the first epoch, the other in the middle of the second, as in gradual unfreezing."""

    def on_epoch_end(self, trainer, epoch):
        if epoch == 1:
            trainer.model[2].requires_grad_(True)

    def on_step_end(self, trainer, step, loss):
        if step == 8:
            trainer.model[0].requires_grad_(True)


class Stop(brim.Callback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, step, loss):
        if step == self.step:
            trainer.stop("for a while")


def train(optimizer, folder="run", resume=None, callbacks=(), **settings):
    model = net()
    brim.Trainer(
        model, brim.Loader((X, Y), batch_size=8), loss_fn=nn.MSELoss(), optimizer=optimizer, lr=0.01, device="cpu",
        threads=1, epochs=4, run_dir=folder, callbacks=[Thaw(), *callbacks], **settings,
    ).fit(resume=resume)  # fmt: skip
    return weights(model)


def plain_loop(make):
    """An optimizer of all parameters, whose gradients are None as long as they are frozen."""
    model = net()
    optimizer, loader, steps = make(model.parameters()), brim.Loader((X, Y), batch_size=8), 0
    for epoch in range(4):
        for x, y in loader.batches(0, epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            steps += 1
            if steps == 8:
                model[0].requires_grad_(True)
        if epoch == 0:
            model[2].requires_grad_(True)
    return weights(model)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.1)


FORMS = {
    "name": (
        {"name": "AdamW", "weight_decay": 0.1, "fused": False},
        adamw,
    ),
    "function": (adamw, adamw),
    "momentum": (momentum, momentum),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_thawed_layer_is_trained_as_by_an_optimizer_of_all_parameters(form):
    wanted, make = FORMS[form]
    assert torch.equal(train(wanted), plain_loop(make))


def fused_momentum(parameters, **settings):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.1, fused=True, **settings)


def test_beside_momentum_the_fused_sgd_takes_a_thawed_layer_in_too():
    torch.testing.assert_close(train(fused_momentum), plain_loop(momentum))


def test_fused_sgd_with_dampening_says_what_to_give():
    with pytest.raises(brim.BrimError, match="fused=False"):
        train(lambda parameters: fused_momentum(parameters, dampening=0.1))


def test_without_an_optimizer_of_ones_own_it_is_trained_too():
    assert not torch.equal(train(None)[:32], weights(net())[:32])


@pytest.mark.matrix(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stop_at", [3, 5, 7, 8, 9, 12])
def test_a_resumed_run_knows_what_was_thawed(form, stop_at):
    wanted, make = FORMS[form]
    train(wanted, callbacks=[Stop(stop_at)])
    assert torch.equal(train(wanted, resume="run"), plain_loop(make))


def test_with_a_schedule_it_has_the_rate_of_the_others():
    rates = []

    class Rates(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            rates.append(len(trainer.optimizer.param_groups))

    train("SGD", scheduler="cosine", callbacks=[Rates()])
    assert set(rates) == {1}


def test_where_the_group_is_not_known_one_sentence_says_so(capsys):
    def two_groups(parameters):
        first, *rest = parameters
        return torch.optim.SGD([{"params": [first]}, {"params": rest, "lr": 0.1}], lr=0.01)

    train(two_groups)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("not known to which of the optimizer's 2 groups") == 2  # two layers, one after the other
    assert "2.weight, 2.bias can be trained from here on" in said


@pytest.mark.parametrize("form", ["one group", "two groups"])
def test_what_a_function_leaves_out_stays_out(form, capsys):
    """A head in a backbone that nobody has frozen, or Muon, which takes matrices only."""
    model = net(frozen=False)

    def of_the_head(parameters):
        weight, bias = model[4].parameters()
        groups = [{"params": [weight]}, {"params": [bias], "lr": 0.1}] if form == "two groups" else [weight, bias]
        return torch.optim.SGD(groups, lr=0.01)

    def run(resume=None, callbacks=()):
        brim.Trainer(
            model, brim.Loader((X, Y), batch_size=8), loss_fn=nn.MSELoss(), optimizer=of_the_head, device="cpu",
            epochs=2, run_dir="run", callbacks=callbacks,
        ).fit(resume=resume)  # fmt: skip

    before, head = weights(model)[:-9].clone(), weights(model)[-9:].clone()
    run(callbacks=[Stop(2)])
    run(resume="run")
    assert torch.equal(weights(model)[:-9], before)
    assert not torch.equal(weights(model)[-9:], head)
    assert "warning" not in capsys.readouterr().err


def test_an_optimizer_of_the_users_own_holds_what_it_is_to_train():
    model = net()
    optimizer = torch.optim.SGD(model[4].parameters(), lr=0.01)
    before = weights(model)[:32].clone()
    brim.Trainer(
        model, (X, Y), loss_fn=nn.MSELoss(), optimizer=optimizer, device="cpu", epochs=3, callbacks=[Thaw()]
    ).fit()
    assert torch.equal(weights(model)[:32], before)
    assert len(optimizer.param_groups[0]["params"]) == 2


def test_a_group_that_a_callback_adds_goes_on_with_a_resumed_run():
    class Add(brim.Callback):
        def on_epoch_end(self, trainer, epoch):
            if epoch == 1:
                optimizer = trainer.optimizer
                optimizer.add_param_group({"params": list(trainer.model[0].parameters()), "lr": 0.002})
                trainer.model[0].requires_grad_(True)

    def run(folder, resume=None, callbacks=()):
        model = net()
        optimizer = torch.optim.Adam(model[4].parameters(), lr=0.01)
        brim.Trainer(
            model, brim.Loader((X, Y), batch_size=8), loss_fn=nn.MSELoss(), optimizer=optimizer, device="cpu",
            threads=1, epochs=3, run_dir=folder, callbacks=[Add(), *callbacks],
        ).fit(resume=resume)  # fmt: skip
        return weights(model)

    whole = run("whole")
    run("run", callbacks=[Stop(7)])
    assert torch.equal(run("run", resume="run"), whole)


def test_other_frozen_layers_than_the_runs_are_worth_a_warning(capsys):
    def run(model, resume=None):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        brim.Trainer(
            model, (X, Y), loss_fn=nn.MSELoss(), optimizer=optimizer, device="cpu", epochs=2 if resume else 1,
            run_dir="run",
        ).fit(resume=resume)  # fmt: skip

    run(net())
    model = net(frozen=False)
    before = weights(model)[:32].clone()
    run(model, resume="run")
    assert "other layers are frozen" in capsys.readouterr().err
    assert not torch.equal(weights(model)[:32], before)  # as the user has it now
