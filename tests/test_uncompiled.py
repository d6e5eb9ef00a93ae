"""What the user has compiled is left as it was by everything that watches the operators of a model."""

import pytest
import torch
from torch import nn

import brim
from brim.hardware.cards import H200
from brim.memory.forecast import make_job
from brim.memory.trace.steps import trace_steps
from brim.uncompiled import uncompiled


@pytest.fixture
def compiles():
    """A model that a function is compiled in, and the list that grows whenever it is compiled."""
    torch._dynamo.reset()
    compiled = []

    def backend(module, inputs):
        compiled.append(module)
        return module.forward

    @torch.compile(backend=backend)
    def waves(x):
        return x.sin() + 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 1)

        def forward(self, x):
            return self.head(waves(x))

    yield Model, compiled
    torch._dynamo.reset()


def test_within_it_runs_eagerly_and_afterwards_it_is_compiled(compiles):
    made, compiled = compiles
    model = made()
    with uncompiled():
        model(torch.zeros(4, 8))
    assert not compiled
    model(torch.zeros(4, 8))
    assert compiled


def test_a_model_whose_batch_is_split_is_still_compiled(compiles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, compiled = compiles
    loader = brim.Loader((torch.randn(32, 8), torch.randn(32, 1)), batch_size=16)
    brim.Trainer(made(), loader, loss_fn=nn.functional.mse_loss, epochs=1, micro_batch=4, capture="off").fit()
    assert compiled


def test_a_model_whose_memory_was_forecast_is_still_compiled(compiles):
    made, compiled = compiles
    model = made()
    job = make_job(model, lambda n: ((torch.zeros(n, 8),), {}), lambda out: out.sum(), None)
    trace_steps(job, 8, H200, (2, 11), 2)
    model(torch.zeros(4, 8))
    assert compiled
