import pytest
import torch
import torch.nn.functional as F
from torch import nn

import brim
from brim.engine.splitting.kept_weights import kept_weights

pytestmark = pytest.mark.usefixtures("own_folder")

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
BATCHES = [(X, X.sum(1, keepdim=True)), (X + 1, X.sum(1, keepdim=True))]


def in_place(weight):
    with torch.no_grad():
        weight.mul_(0.9)


def through_data(weight):
    weight.data.mul_(0.9)


def by_other_memory(weight):
    weight.data = weight.data * 0.9


def of_a_view(weight):
    weight.data[0].zero_()


def among_many(weight):
    torch._foreach_mul_([weight.data], 0.9)


def into_out(weight):
    torch.mul(weight.data, 0.9, out=weight.data)


WAYS = [in_place, through_data, by_other_memory, of_a_view, among_many, into_out]


@pytest.mark.parametrize("write", WAYS)
def test_what_was_written_to_holds_what_it_held_in_the_same_memory(write):
    weight = nn.Parameter(torch.arange(1.0, 7.0).reshape(2, 3))
    memory = weight.data_ptr()
    with kept_weights([weight]):
        write(weight)
        write(weight)
        assert not torch.equal(weight, torch.arange(1.0, 7.0).reshape(2, 3))
    assert torch.equal(weight, torch.arange(1.0, 7.0).reshape(2, 3))
    assert weight.data_ptr() == memory


@pytest.mark.parametrize("write", [in_place, through_data, by_other_memory])
def test_it_tells_which_were_written_to(write):
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    with kept_weights([one, other]) as written_to:
        assert written_to() == []
        write(other)
        assert [weight is other for weight in written_to()] == [True]


class Shrinks(nn.Module):
    """A weight that each forward pass in training makes smaller, as constraints and decays by hand do."""

    def __init__(self, write):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.write = nn.Linear(4, 1), write

    def forward(self, x):
        self.write(self.layer.weight)
        return self.layer(x)


@pytest.mark.parametrize("write", WAYS)
def test_asking_what_a_loss_counts_leaves_weights_that_its_forward_writes_to(write):
    """Accumulation asks; a loop by hand calls each batch once."""
    accumulated, by_hand = Shrinks(write), Shrinks(write)
    brim.Trainer(
        accumulated, BATCHES, loss_fn=lambda model, batch: F.mse_loss(model(batch[0]), batch[1]), device="cpu",
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), gradient_accumulation_steps=2, epochs=3,
    ).fit()  # fmt: skip
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for x, y in BATCHES:
            (F.mse_loss(by_hand(x), y) / 2).backward()
        optimizer.step()
    torch.testing.assert_close(accumulated.layer.weight, by_hand.layer.weight, rtol=1e-5, atol=1e-7)
