"""Modules that are not quite torch's: scripted ones, whose tensors no dict holds, and those that answer to any name."""

import copy

import pytest
import torch
from torch import nn

import brim
from brim.errors import ConfigError
from brim.model_blocks import chosen_blocks

pytestmark = [pytest.mark.usefixtures("own_folder"), pytest.mark.filterwarnings("ignore:.torch.jit")]

torch.manual_seed(0)
BATCHES = [(torch.randn(8, 6), torch.randn(8, 1)) for _ in range(6)]
SETTINGS = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "epochs": 2, "loggers": []}


class Counts(nn.Module):
    def __init__(self, norm: bool = True):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4) if norm else nn.Tanh())
        self.last = nn.Linear(4, 1)
        self._buffers["seen"] = torch.zeros(())  # register_buffer refuses a name that a module answers to

    def forward(self, x):
        self.seen.add_(1)
        return self.last(self.first(x))


class Answers(Counts):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return None


class AnswersCalls(Counts):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return lambda *args, **kwargs: None


def scripted(**options):
    torch.manual_seed(3)
    return torch.jit.script(Counts(**options))


def made(kind):
    torch.manual_seed(3)
    return kind()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


def plain_loop(model, steps=12):
    optimizer = sgd(model.parameters())
    for x, y in (BATCHES * 2)[:steps]:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def trained(model, **settings):
    brim.Trainer(model, BATCHES, optimizer=sgd, **SETTINGS | settings).fit()
    return model.state_dict()


def same(found, wanted):
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("make", [scripted, lambda: made(Answers), lambda: made(AnswersCalls)])
def test_odd_models_train_as_in_a_plain_loop(make):
    assert same(trained(make()), plain_loop(make()))


def test_scripted_models_in_micro_batches_train_as_in_whole_batches():
    found, wanted = trained(scripted(norm=False), micro_batch=4), plain_loop(scripted(norm=False))
    assert all(torch.allclose(found[name], wanted[name], rtol=1e-5) for name in wanted)


def test_scripted_models_are_evaluated_averaged_saved_and_resumed():
    whole, parts, settings = scripted(), scripted(), {"eval_data": BATCHES[:2], "ema": 0.5}
    trained(whole, run_dir="whole", **settings)
    trained(parts, run_dir="parts", **settings | {"max_steps": 4})
    resumed = brim.Trainer(parts, BATCHES, optimizer=sgd, run_dir="parts", **SETTINGS | settings)
    resumed.fit(resume="auto")
    assert same(parts.state_dict(), whole.state_dict())
    assert same(brim.load("whole", scripted()).state_dict(), whole.state_dict())


@pytest.mark.parametrize("kind", [Answers, AnswersCalls])
def test_models_that_answer_to_any_name_are_split_and_taken_for_no_compiled_ones(kind, capsys):
    trained(made(kind), micro_batch=4, compile=True, checkpointing=True)
    assert "compiled already" not in capsys.readouterr().err


def test_an_average_of_a_model_whose_copy_is_none_is_refused():
    assert copy.deepcopy(made(AnswersCalls)) is None
    with pytest.raises(ConfigError, match="needs a copy of the model, which cannot be made"):
        trained(made(AnswersCalls), ema=0.9)


def test_blocks_are_those_of_the_whole_model_also_where_it_has_a_part_called_user_model():
    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.user_model = nn.Linear(6, 4)
            self.items = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)])

    assert len(chosen_blocks(Towers(), True)) == 3
