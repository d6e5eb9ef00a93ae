"""A run that is refused leaves the weights as long as they were, and one that begins holds no copy of them."""

import gc

import pytest
import torch
from torch import nn

import brim
from brim.errors import BrimError

pytestmark = pytest.mark.usefixtures("own_folder")

X, Y = torch.randn(12, 2), torch.randint(0, 2, (12,))


class Mean(nn.Module):
    """Weights that bfloat16 cannot hold, a buffer and a part that is there twice."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.same = self.one
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("mean", torch.tensor([0.485, 0.456]))

    def forward(self, x):
        return self.norm(self.same(self.one(x - self.mean)))


def trainer(model, folder="run", data=None, **settings):
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.333, 0.777]))
    fixed = {"loss_fn": criterion, "device": "cpu", "threads": 1, "epochs": 1, "precision": "bf16-true"}
    return brim.Trainer(model, data or (X, Y), run_dir=folder, **{**fixed, **settings})


REFUSED = {
    "a folder that holds a run": ({}, {}),
    "an optimizer that there is not": ({"optimizer": "Nope"}, {}),
    "a schedule that there is not": ({"scheduler": lambda optimizer: None}, {}),
    "patience for nothing": ({"patience": 2}, {}),
    "a checkpoint of another type": ({}, {"resume": "run"}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_run_that_is_refused_has_rounded_nothing(why):
    settings, arguments = REFUSED[why]
    trainer(Mean(), precision="32").fit()
    model = Mean()
    model.one.weight.grad = torch.rand(2, 2)
    one = trainer(model, **settings)
    objects = [*model.parameters()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradient, weight = model.one.weight.grad.clone(), one.loss_fn.weight.clone()
    with pytest.raises(BrimError):
        one.fit(**arguments)
    after = model.state_dict()
    assert all(after[name].dtype == t.dtype and torch.equal(after[name], t) for name, t in before.items())
    assert all(mine is theirs for mine, theirs in zip(model.parameters(), objects, strict=True))
    assert torch.equal(model.one.weight.grad, gradient) and torch.equal(one.loss_fn.weight, weight)
    assert model.same is model.one


def test_once_it_begins_nothing_is_kept_of_the_longer_weights():
    seen = []

    class Look(brim.Callback):
        def on_fit_start(self, trainer):
            gc.collect()
            tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor) and one.numel() == 2 * 4093]
            seen.append({one.dtype for one in tensors})

    model = nn.Sequential(nn.Linear(2, 4093), nn.Linear(4093, 2))
    trainer(model, callbacks=[Look()]).fit()
    assert seen == [{torch.bfloat16}]


def test_other_precisions_have_nothing_to_put_back():
    model = Mean()
    with pytest.raises(BrimError, match="Nope"):
        trainer(model, precision="32", optimizer="Nope").fit()
    assert model.one.weight.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize("came_from", ["cpu", "cuda"])
def test_on_a_gpu_they_are_again_where_they_were(came_from):
    model = Mean().to(came_from)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(BrimError, match="Nope"):
        trainer(model, device="cuda", optimizer="Nope").fit()
    after = model.state_dict()
    assert all(after[name].dtype == t.dtype and torch.equal(after[name], t) for name, t in before.items())
    assert all(after[name].device == t.device for name, t in before.items())
