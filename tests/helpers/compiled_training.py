"""Trainings with a compiled loss beside the same trainings without; the backend is torch's aot_eager, a quick one."""

import json

import torch
from torch import nn

import brim
from brim.engine.calling.compiler import Compiler

BY_BLOCKS = {"backend": "aot_eager", "per": "block"}
AUTO = Compiler(is_auto=True, backend="aot_eager", per="block")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.drop = nn.LayerNorm(8), nn.Linear(8, 8), nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(torch.tanh(self.linear(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 1)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def batches(lengths=(5,) * 8, size=6):
    generator = torch.Generator().manual_seed(0)
    words = [torch.randint(0, 11, (size, length), generator=generator) for length in lengths]
    return [(one, one.float().mean(1, keepdim=True) / 10) for one in words]


def trained(compile, path, data=None, make=Net, **settings):
    torch.manual_seed(0)
    model = make()
    given = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "epochs": 2, "optimizer": "SGD", "lr": 0.1}
    trainer = brim.Trainer(model, data or batches(), run_dir=path, compile=compile, **{**given, **settings})
    trainer.fit()
    return model, trainer


def assert_same(one, other):
    assert list(one.state_dict()) == list(other.state_dict())
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


def decision(path):
    return json.loads((path / "plan.json").read_text())["choices"]["compile"]
