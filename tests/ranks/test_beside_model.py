"""What is beside the model, and what callbacks thaw, over several ranks."""

import pytest
import torch
import torch.nn.functional as F
from rank_training import ROUNDING, are_the_same_bits, columns, difference, net, this_rank, train
from torch import nn

import brim
from brim.errors import RunFolderError


class Weighing(nn.Module):
    """A criterion with a buffer that each rank would have its own of."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.full((1,), 1.0 + this_rank()))

    def forward(self, input, target):
        return F.mse_loss(input, target) * self.scale.squeeze()


class Stateful(nn.Module):
    """A model with a number beside its weights, which each rank would have its own of."""

    def __init__(self):
        super().__init__()
        self.net, self.scale = net(), 1.0 + this_rank()

    def forward(self, x):
        return self.net(x) * self.scale

    def get_extra_state(self):
        return {"scale": self.scale}

    def set_extra_state(self, state):
        self.scale = state["scale"]


def with_criterion(**settings):
    return train(loss_fn=Weighing(), max_steps=20, **settings)


def with_extra_state(**settings):
    return train(model=Stateful(), max_steps=20, **settings)


def with_temperature(**settings):
    model = net()
    temperature = nn.Parameter(torch.full((), 0.5 * this_rank()))
    optimizer = torch.optim.SGD([*model.parameters(), temperature], lr=0.02)
    trained = train(
        model=model, optimizer=optimizer, max_steps=20,
        loss_fn=lambda m, b: F.mse_loss(m(b[0]), b[1]) * torch.exp(-temperature) + temperature, **settings,
    )  # fmt: skip
    trained["weights"]["temperature"] = temperature.detach().clone()
    return trained


@pytest.mark.matrix(1)
@pytest.mark.parametrize("case", ["with_criterion", "with_extra_state", "with_temperature"])
def test_all_ranks_begin_with_what_the_first_has_beside_its_model(launch, case):
    function = globals()[case]
    (alone,) = launch(1, function)
    first, second = launch(2, function)
    assert difference(first, alone) <= ROUNDING
    assert are_the_same_bits(first, second)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("case", ["with_criterion", "with_extra_state"])
def test_so_do_ranks_with_shards(launch, case):
    function = globals()[case]
    (alone,) = launch(1, function)
    for of_rank in launch(2, function, strategy="fsdp"):
        assert difference(of_rank, alone) <= ROUNDING


class Centre(nn.Module):
    """Its buffer follows the outputs of each rank."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(1))

    def forward(self, input, target):
        self.centre.lerp_(input.detach().mean().reshape(1) + 1, 0.1)
        return F.mse_loss(input - self.centre, target)


def with_centre(max_steps, resume=None, run_dir="run"):
    return train(loss_fn=Centre(), max_steps=max_steps, resume=resume, run_dir=run_dir, checkpoint_every=10)


@pytest.mark.slow
def test_a_resumed_run_of_ranks_goes_on_with_what_the_loss_keeps(launch, tmp_path):
    whole = launch(2, with_centre, max_steps=20, run_dir=str(tmp_path / "whole"))
    run = str(tmp_path / "run")
    launch(2, with_centre, max_steps=10, run_dir=run)
    resumed = launch(2, with_centre, max_steps=20, run_dir=run, resume=run)
    assert are_the_same_bits(resumed[0], whole[0])


def sharded_with_temperature():
    temperature = nn.Parameter(torch.zeros(()))
    return train(strategy="fsdp", optimizer=lambda p: torch.optim.SGD([*p, temperature], lr=0.1), max_steps=2)


def test_a_parameter_beside_a_sharded_model_is_refused(launch):
    for outcome in launch.outcomes(2, sharded_with_temperature):
        assert outcome.error == "ConfigError" and "holds a parameter that is not the model's" in outcome.message


class Thaw(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        trainer.model[0].requires_grad_(True)


def thawing(optimizer="AdamW", strategy="ddp", **settings):
    model = net()
    model[0].requires_grad_(False)
    return train(
        columns(32), model, callbacks=[Thaw()], **{"max_steps": 20, **settings}, optimizer=optimizer, lr=1e-2,
        strategy=strategy,
    )  # fmt: skip


def thawed_by_hand():
    model = net()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    return train(columns(32), model, callbacks=[Thaw()], max_steps=20, optimizer=optimizer)


@pytest.mark.slow
def test_a_thawed_layer_is_trained_by_an_optimizer_by_name(launch, tmp_path):
    (alone,) = launch(1, thawed_by_hand)
    first, second = launch(2, thawing)
    assert difference(first, alone) <= ROUNDING
    assert are_the_same_bits(first, second)
    run = str(tmp_path / "run")
    launch(2, thawing, run_dir=run, max_steps=11)
    for of_rank in launch(1, thawing, run_dir=run, resume=run):
        assert difference(of_rank, alone) <= ROUNDING


def test_thawing_a_layer_of_a_sharded_model_is_refused(launch):
    for outcome in launch.outcomes(2, thawing, strategy="fsdp"):
        assert outcome.error == "ConfigError" and "thawing layers of trainer.model" in outcome.message


class Halve(brim.Callback):
    """What comes last is in the run folder, also of a sharded model."""

    def on_fit_end(self, trainer):
        with torch.no_grad():
            trainer.model[0].weight.mul_(0.5)


def halved(strategy):
    trained = train(strategy=strategy, callbacks=[Halve()], max_steps=8)
    loaded = brim.load(trained["run"], net())
    return trained, {name: tensor.clone() for name, tensor in loaded.state_dict().items()}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_what_is_changed_at_the_end_is_in_the_folder(launch, strategy):
    for trained, loaded in launch(2, halved, strategy=strategy):
        assert all(torch.equal(loaded[name], tensor) for name, tensor in trained["weights"].items())


class Second(brim.Callback):
    """While the run goes on, another one is begun in its folder."""

    def on_step_end(self, trainer, step, loss):
        if step == 3:
            with pytest.raises(RunFolderError) as refused:
                train(run_dir="run", resume="run", max_steps=9)
            self.said = str(refused.value)


def twice_in_a_folder():
    train(callbacks=[second := Second()], max_steps=5)
    return second.said


def test_a_second_run_in_the_folder_is_refused_on_all_ranks(launch):
    for said in launch(2, twice_in_a_folder):
        assert "is in use by process" in said
