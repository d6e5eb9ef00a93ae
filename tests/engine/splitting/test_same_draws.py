"""Parts of a batch get the random numbers that the whole batch got for their samples."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from brim.engine.splitting.same_draws import CannotSplit, SameDraws

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
PARTS = [torch.arange(2), torch.arange(2, 6), torch.tensor([5, 0, 3])]


def attended(x):
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], None, 0.5)[:, 0]


def bernoulli(x):
    return x * torch.empty_like(x).bernoulli_(0.5)


DRAWING = {
    "F.dropout": lambda x: F.dropout(x, 0.5),
    "F.alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "rand_like": lambda x: x + torch.rand_like(x),
    "randn of the samples": lambda x: x * torch.randn(len(x), 1),
    "bernoulli": bernoulli,
    "several for a sample": lambda x: x * torch.rand(3 * len(x), 4).view(len(x), 3, 4).mean(1),
    "samples in another place": lambda x: x + torch.rand(4, len(x)).T,
    "one for all": lambda x: x * torch.rand(()) + torch.rand(4),
    "normal_": lambda x: x + torch.empty(len(x), 1).normal_(),
    "randint": lambda x: x * torch.randint(0, 9, (len(x), 1)),
}


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("rows", PARTS, ids=str)
def test_each_part_gets_the_draws_of_its_samples(name, rows):
    draws = SameDraws(None, len(X))
    with draws.recording():
        whole = DRAWING[name](X)
    with draws.replaying(rows):
        part = DRAWING[name](X[rows])
    assert torch.equal(part, whole[rows])


def test_another_order_of_the_samples_gets_the_draws_of_its_samples():
    draws, rows = SameDraws(None, len(X)), torch.arange(len(X)).flip(0)
    with draws.recording():
        whole = F.dropout(X, 0.5)
    with draws.replaying(rows):
        assert torch.equal(F.dropout(X[rows], 0.5), whole[rows])


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x[torch.randperm(len(x))],
        lambda x: x * torch.rand(len(x) + 1)[: len(x), None],
        lambda x: x + (torch.rand_like(x) if len(x) == 6 else 0) + torch.randn_like(x),
        lambda x: x + torch.rand(len(x), len(x)).sum(),
    ],
    ids=["randperm", "one more than samples", "other draws for parts", "a number for each pair"],
)
def test_draws_that_belong_to_no_sample_cannot_be_split(draw):
    draws = SameDraws(None, len(X))
    with pytest.raises(CannotSplit):
        with draws.recording():
            draw(X)
        with draws.replaying(torch.arange(3)):
            draw(X[:3])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.plane = nn.Dropout(0.5), nn.Dropout1d(0.25)
        self.lstm = nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return attended(self.lstm(self.plane(self.drop(x)[:, None]))[0][:, 0])


def test_dropout_of_layers_and_attention_is_off_meanwhile_and_on_again():
    model = Model()
    draws = SameDraws(model, len(X))
    with draws.recording():
        whole = model(X)
    with draws.replaying(PARTS[1]):
        part = model(X[PARTS[1]])
    assert torch.allclose(part, whole[PARTS[1]], atol=1e-6)
    assert (model.drop.p, model.plane.p, model.lstm.dropout) == (0.5, 0.25, 0.5)
    assert not torch.equal(attended(X.abs()), attended(X.abs()))


def test_dropout_is_on_again_after_an_error():
    model = Model()
    with pytest.raises(KeyError), SameDraws(model, 6).recording():
        raise KeyError
    assert (model.drop.p, model.plane.p, model.lstm.dropout) == (0.5, 0.25, 0.5)
