import pytest
import torch
import yaml
from torch import nn

import brim
from brim.record.run_config import optimizer_name, rates_of, run_config, used_optimizer

X, Y = torch.randn(8, 3), torch.randn(8, 1)


class Own(torch.optim.SGD):
    """An optimizer of the user's."""


def sgd(lr=0.07, kind=torch.optim.SGD):
    return kind([nn.Parameter(torch.ones(1))], lr=lr)


def recorded(tmp_path, **settings):
    model = nn.Linear(3, 1)
    settings = {name: value(model) if callable(value) else value for name, value in settings.items()}
    trainer = brim.Trainer(model, (X, Y), loss_fn=nn.MSELoss(), device="cpu", threads=1, run_dir=tmp_path, **settings)
    trainer.fit(resume="auto")
    return yaml.safe_load((tmp_path / "config.yaml").read_text())["trainer"]


@pytest.mark.parametrize(
    ("settings", "optimizer", "lr"),
    [
        ({}, "AdamW", 0.001),
        ({"optimizer": "sgd", "lr": 0.5}, "SGD", 0.5),
        ({"optimizer": {"name": "SGD", "momentum": 0.5}, "lr": 0.5}, {"name": "SGD", "momentum": 0.5}, 0.5),
        ({"optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.07)}, "SGD", 0.07),
        ({"optimizer": lambda model: Own(model.parameters(), lr=0.07)}, f"{Own.__module__}.Own", 0.07),
        ({"optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.07), "scheduler": "linear"}, "SGD", 0.07),
        ({"optimizer": lambda model: lambda parameters: torch.optim.Adam(parameters, lr=0.2)}, "Adam", 0.2),
    ],
    ids=["none", "name", "mapping", "instance", "own class", "schedule", "function"],
)
def test_the_file_tells_the_optimizer_and_the_rate_that_were_used(tmp_path, settings, optimizer, lr):
    found = recorded(tmp_path / "run", **settings)
    assert (found["optimizer"], found["lr"]) == (optimizer, lr)


def test_groups_with_their_own_rates_are_listed():
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.1, 0.01, 0.1)]
    own = torch.optim.SGD(groups, lr=1.0)
    assert rates_of(own) == [0.1, 0.01]
    assert used_optimizer(own, own)["lr"] == [0.1, 0.01]


def test_a_configuration_of_the_users_is_kept_and_a_comment_says_what_was_used():
    text = run_config("trainer:\n  optimizer: null\n", {}, sgd())
    assert text == "trainer:\n  optimizer: null\n# used: SGD, lr 0.07\n"


def test_other_classes_are_named_with_their_module():
    assert optimizer_name(sgd(kind=Own)) == f"{Own.__module__}.Own"
