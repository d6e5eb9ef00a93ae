"""Groups of parameters by rule, against groups written by hand."""

from collections import OrderedDict

import pytest
import torch
from helpers.callbacks import StopAt
from helpers.weights import weights
from torch import nn

import brim
from brim.engine.components.optimizer import make_optimizer
from brim.engine.components.parameter_groups import describe_groups, layer_factors
from brim.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x).tanh()
        return self.head(x)


def by_name(optimizer, model, key):
    names = {id(p): n for n, p in model.named_parameters()}
    return {names[id(p)]: group[key] for group in optimizer.param_groups for p in group["params"]}


def fit(model, optimizer, resume=None, **settings):
    fixed = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "run_dir": "run", "epochs": 3, "lr": 0.01}
    made = brim.Trainer(model, brim.Loader((X, Y), batch_size=8), optimizer=optimizer, **{**fixed, **settings})
    made.fit(resume=resume)
    return made


def spared(model):
    return [p for n, p in model.named_parameters() if n.endswith("bias") or n.split(".")[2:3] == ["1"]]


def test_no_decay_by_name_and_by_kind_of_module():
    model = Net()
    made = make_optimizer({"name": "adamw", "weight_decay": 0.1, "no_decay": ["bias", "norm"]}, model, 0.01)
    found = by_name(made, model, "weight_decay")
    assert {n for n, decay in found.items() if decay == 0} == {
        n for n, p in model.named_parameters() if any(p is other for other in spared(model))
    }
    assert set(found) == {n for n, _ in model.named_parameters()} and set(found.values()) == {0.0, 0.1}


def test_training_with_rules_is_training_with_groups_by_hand():
    model, by_hand = Net(), Net()
    fit(model, {"name": "AdamW", "weight_decay": 0.1, "no_decay": ["bias", "norm"], "lr_of": {"head": 0.05}})

    def groups(parameters):
        rest = [p for p in by_hand.parameters() if not any(p is other for other in spared(by_hand))]
        return torch.optim.AdamW(
            [
                {"params": [p for p in rest if p is not by_hand.head.weight]},
                {"params": [p for p in spared(by_hand) if p is not by_hand.head.bias], "weight_decay": 0.0},
                {"params": [by_hand.head.weight], "lr": 0.05},
                {"params": [by_hand.head.bias], "lr": 0.05, "weight_decay": 0.0},
            ],
            lr=0.01, weight_decay=0.1, fused=True,
        )  # fmt: skip

    fit(by_hand, groups, run_dir="other")
    assert torch.equal(weights(model), weights(by_hand))


def test_layers_have_rates_of_their_own():
    model = Net()
    found = by_name(make_optimizer({"name": "SGD", "layer_decay": 0.5}, model, 0.16), model, "lr")
    assert found["head.weight"] == 0.16 and found["embed.bias"] == pytest.approx(0.01)
    assert [found[f"blocks.{i}.0.weight"] for i in range(3)] == pytest.approx([0.02, 0.04, 0.08])
    assert layer_factors(torch.compile(model, backend="eager"), 0.5) == layer_factors(model, 0.5)


def test_blocks_that_have_names_have_rates_in_their_order():
    """As in torchvision's ViT: ``encoder.layers.encoder_layer_0``."""
    blocks = OrderedDict((name, nn.Sequential(nn.Linear(4, 4))) for name in ("zero", "one"))
    model = nn.Sequential(OrderedDict(blocks=nn.Sequential(blocks), head=nn.Linear(4, 1)))
    factors = {name: factor for name, factor in layer_factors(model, 0.5).items() if name.endswith("weight")}
    assert factors == {"blocks.zero.0.weight": 0.25, "blocks.one.0.weight": 0.5, "head.weight": 1.0}


def test_lines_name_every_parameter():
    model = Net()
    model.embed.requires_grad_(False)
    made = make_optimizer({"weight_decay": 0.1, "no_decay": ["bias"], "lr_of": {"head": 0.1}}, model, 0.01)
    told = "\n".join(describe_groups(made, model))
    assert all(name in told for name, _ in model.named_parameters())
    assert "embed.weight (frozen)" in told and "lr 0.1, weight decay 0: head.bias" in told


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"no_decay": ["bais"]}, "'bais', which matches no parameter"),
        ({"lr_of": {"haed": 0.1}}, "'haed', which matches no parameter"),
        ({"lr_of": {"head": -1}}, "number above 0"),
        ({"lr_of": {"head": 0.1, "weight": 0.2}}, "several rates, by 'head' and 'weight'"),
        ({"lr_of": 0.1}, "must map patterns"),
        ({"no_decay": 3}, "list of patterns"),
        ({"layer_decay": 1.5}, "at most 1"),
        ({"name": "SGD", "no_decay": ["bias"]}, "set weight_decay as well"),
        ({"name": "SGD", "no_dacay": ["bias"]}, "'no_dacay' is not an argument"),
    ],
)
def test_mistakes_get_a_sentence(rules, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_optimizer(rules, Net(), 0.01)


def test_layer_decay_without_a_stack_of_blocks_is_refused():
    with pytest.raises(ConfigError, match="has none; give the rates"):
        make_optimizer({"layer_decay": 0.9}, nn.Sequential(nn.Linear(4, 1)), 0.01)


class Thaw(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        if epoch == 1:
            trainer.model.embed.requires_grad_(True)


RULES = {"name": "AdamW", "weight_decay": 0.1, "no_decay": ["bias", "norm"], "layer_decay": 0.7}


def test_a_thawed_layer_joins_the_groups_of_its_rules():
    model, by_hand = Net(), Net()
    model.embed.requires_grad_(False)
    made = fit(model, RULES, callbacks=[Thaw()], scheduler="linear")
    optimizer = make_optimizer(RULES, by_hand, 0.01)
    rates = by_name(made.optimizer, model, "initial_lr")
    assert rates == by_name(optimizer, by_hand, "lr")
    decay = by_name(made.optimizer, model, "weight_decay")
    assert decay == by_name(optimizer, by_hand, "weight_decay")
    assert not torch.equal(model.embed.weight, by_hand.embed.weight)


@pytest.mark.parametrize("stop", [3, 7])  # before and after a layer is thawed
def test_groups_and_thawed_layers_resume_to_the_bit(stop):
    whole, model = Net(), Net()
    whole.embed.requires_grad_(False), model.embed.requires_grad_(False)
    fit(whole, RULES, callbacks=[Thaw()], run_dir="whole")
    fit(model, RULES, callbacks=[Thaw(), StopAt(stop)])
    again = Net()
    again.embed.requires_grad_(False)
    fit(again, RULES, callbacks=[Thaw()], resume="run")
    assert torch.equal(weights(again), weights(whole))


def test_the_name_of_a_tied_parameter_that_does_not_count_is_answered_with_the_one_that_does():
    model = Net()
    model.again = nn.Linear(4, 8)
    model.again.weight = model.embed.weight
    for rule in ({"lr_of": {"again.weight": 0.1}}, {"no_decay": ["again.weight"]}):
        with pytest.raises(
            ConfigError, match=r"again\.weight is tied to embed\.weight.*the model names 'embed\.weight'"
        ):
            make_optimizer({"name": "AdamW", **rule}, model, 0.01)
    rates = by_name(make_optimizer({"name": "AdamW", "lr_of": {"embed.weight": 0.1}}, model, 0.01), model, "lr")
    assert rates["embed.weight"] == 0.1 and rates["again.bias"] == 0.01
