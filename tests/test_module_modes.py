"""Modes of modules: what the user put into eval mode stays there, and everything comes back as it was."""

import pytest
import torch
from torch import nn

import brim
from brim.module_modes import set_training_modes, training_modes

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X = torch.randn(24, 4)
Y = X.sum(1, keepdim=True)


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))


def modes(model):
    return {name: module.training for name, module in model.named_modules()}


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


def fit(model, **settings):
    settings = {"loss_fn": nn.MSELoss(), "optimizer": sgd, "device": "cpu", "threads": 1, "epochs": 2, **settings}
    trainer = brim.Trainer(model, brim.Loader((X, Y), batch_size=8), **settings)
    trainer.fit()
    return trainer


def plain_loop(model, epochs=2):
    """As a user would write it: train mode, then the frozen norm back into eval mode."""
    optimizer, loader = sgd(model.parameters()), brim.Loader((X, Y), batch_size=8)
    torch.manual_seed(0)
    for epoch in range(epochs):
        for x, y in loader.batches(0, epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return model


def same(one, other):
    return all(
        torch.allclose(a, other.state_dict()[name], rtol=1e-5, atol=1e-6) for name, a in one.state_dict().items()
    )


@pytest.mark.parametrize("settings", [{}, {"eval_data": [(X, Y)], "eval_every": "1 steps"}], ids=["train", "evaluated"])
def test_a_norm_in_eval_mode_is_left_there_and_its_statistics_do_not_move(settings):
    model, by_hand = net(), net()
    model[1].eval(), by_hand[1].eval()
    fit(model, **settings)
    if not settings:
        assert same(model, plain_loop(by_hand))
    assert torch.equal(model[1].running_mean, torch.zeros(8)) and int(model[1].num_batches_tracked) == 0
    assert model[3].running_mean.abs().sum() > 0
    assert modes(model) == {**modes(net()), "1": False}


def test_a_model_in_eval_mode_as_a_whole_is_trained_and_comes_back_in_eval_mode():
    model = net().eval()
    fit(model)
    assert same(model, plain_loop(net().train()))
    assert not any(modes(model).values())


class KeepsEncoder(nn.Module):
    """Its own ``train`` keeps a part in eval mode, as many do; another part drops out always."""

    def __init__(self):
        super().__init__()
        self.encoder, self.always, self.head = nn.Dropout(0.5), nn.Dropout(0.1), nn.Linear(4, 1)

    def train(self, mode=True):
        super().train(mode)
        self.encoder.training, self.always.training = False, True
        return self

    def forward(self, x):
        return self.head(self.always(self.encoder(x)))


@pytest.mark.parametrize("start", [True, False])
def test_the_train_method_of_a_model_is_heard(start):
    model = KeepsEncoder()
    if not start:
        model.eval()
    before = modes(model)
    with training_modes(model):
        assert modes(model) == {"": True, "encoder": False, "always": True, "head": True}
    assert modes(model) == before


def test_parts_in_train_mode_of_a_model_in_eval_mode_are_what_the_user_wants():
    model = net().eval()
    model[4].train()
    before = modes(model)
    assert set_training_modes(model) == ["", "0", "1", "2", "3"]
    assert modes(model) == before


def test_the_line_names_the_outermost_modules():
    told = []
    model = nn.ModuleDict({"encoder": net(), "head": net()})
    model["encoder"].eval()
    model["head"][1].eval()
    with training_modes(model, told.append):
        assert not any(modes(model["encoder"]).values())
    assert told == [
        "encoder, head.1 are in eval mode and stay there; to train all of the model, call model.train() before fit"
    ]


def test_a_pretrained_part_is_trained_as_those_who_fine_tune_it_expect():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=9
    )
    model = nn.ModuleDict({"encoder": transformers.BertModel(config).eval(), "head": nn.Linear(8, 2)})
    with training_modes(model):
        assert all(modes(model).values())
    model["encoder"].requires_grad_(False)
    with training_modes(model):
        assert not any(modes(model["encoder"]).values())


def test_an_adapted_model_is_trained_in_all_of_its_parts():
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9, n_positions=8)
    base = transformers.GPT2LMHeadModel(config).eval()  # as from_pretrained leaves it
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    before = modes(model)
    with training_modes(model):
        assert all(modes(model).values())
    assert modes(model) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_modes_come_back_after_an_error(error):
    class Fails(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            raise error("in the middle")

    model = net().eval()
    with pytest.raises(error):
        fit(model, callbacks=[Fails()])
    assert not any(modes(model).values())
    model = net()
    model[1].eval()
    with pytest.raises(error):
        fit(model, callbacks=[Fails()])
    assert modes(model) == {**modes(net()), "1": False}


class Switches(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        trainer.model[1].eval()


def test_a_callback_may_switch_modes_and_evaluation_leaves_them_so():
    model, statistics = net(), []

    class Looks(brim.Callback):
        def on_evaluate(self, trainer, metrics):
            statistics.append(model[1].running_mean.clone())

    fit(model, epochs=3, eval_data=[(X, Y)], callbacks=[Switches(), Looks()])
    assert statistics[0].abs().sum() > 0
    assert torch.equal(statistics[0], statistics[1]) and torch.equal(statistics[1], statistics[2])
    assert all(modes(model).values())
