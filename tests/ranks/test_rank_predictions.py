"""Predicting over ranks: each computes its batches, and all get the outputs of one, in the order of the data."""

import pytest
import torch
from rank_training import X, Y, columns, net, this_rank
from torch import nn

import brim


class Centring(nn.Module):
    """Each row depends on the others of its batch, so batches must stay what they are."""

    def __init__(self):
        super().__init__()
        self.net = net()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.net(x - x.mean(0))


def predicted(kind, samples):
    model = Centring()
    trainer = brim.Trainer(model, columns(64), loss_fn=nn.MSELoss(), device="cpu", max_steps=3, threads=1)
    trainer.fit()
    model.calls = 0
    data = {
        "loader": brim.Loader((X[:samples], Y[:samples]), 8),
        "batches": list(zip(X[:samples].split(8), Y[:samples].split(8), strict=True)),
    }
    outputs = trainer.predict(data[kind])
    calls = model.calls
    with torch.no_grad():
        wanted = torch.cat([model.eval()(x) for x in X[:samples].split(8)])
    return outputs, wanted, calls


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("kind", "samples"), [("loader", 60), ("batches", 60), ("loader", 5)])
def test_all_ranks_have_the_outputs_of_one_and_share_the_work(launch, kind, samples):
    ranks = launch(3, predicted, kind=kind, samples=samples)
    for outputs, wanted, _ in ranks:
        assert torch.equal(outputs, ranks[0][0]) and torch.allclose(outputs, wanted, rtol=1e-5, atol=1e-6)
    assert sum(calls for *_, calls in ranks) == -(-samples // 8)


def fails_on_one():
    class Fails(nn.Linear):
        def forward(self, x):
            if this_rank() == 1:
                raise ValueError("mine")
            return super().forward(x)

    trainer = brim.Trainer(Fails(6, 1), columns(64), loss_fn=nn.MSELoss(), device="cpu")
    try:
        trainer.predict(brim.Loader((X, Y), 8))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_what_fails_on_one_rank_ends_all_with_its_name(launch):
    first, second = launch(2, fails_on_one)
    assert first == "BrimError: rank 1 could not predict its batches: mine"
    assert second == "ValueError: mine"
