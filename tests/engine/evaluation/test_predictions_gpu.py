"""Predictions on a GPU, on one that is named twice, and on several where there are any."""

import pytest
import torch
from torch import nn

import brim
from brim.engine.components.precision import Precision
from brim.engine.evaluation.predictions import predict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GPU = torch.device("cuda", 0)
ALL = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
X = torch.randn(70, 32, generator=torch.Generator().manual_seed(0))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.BatchNorm1d(64), nn.Linear(64, 5)).to(GPU).eval()


def by_hand(model):
    with torch.no_grad():
        return torch.cat([model(part.to(GPU)).cpu() for part in X.split(8)])


@pytest.mark.parametrize("devices", [[GPU], [GPU, GPU], ALL], ids=["one", "twice", "all"])
def test_outputs_are_those_of_the_model_called_by_hand_and_lie_in_host_memory(devices):
    model = net()
    outputs = predict(model, brim.Loader((X,), 8), None, Precision("32", GPU), devices=devices)
    assert outputs.device.type == "cpu"
    torch.testing.assert_close(outputs, by_hand(model))


def test_half_precision_outputs_are_numbers_that_numpy_knows():
    outputs = predict(net(), brim.Loader((X,), 8), None, Precision("bf16-mixed", GPU))
    assert outputs.numpy().shape == (70, 5)


def test_outputs_do_not_gather_on_the_device():
    class Wide(nn.Module):
        def forward(self, x):
            return x.repeat(1, 1 << 13)  # a MiB a sample

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    predict(Wide(), brim.Loader((X,), 2), None, Precision("32", GPU), output=lambda out, batch: out)
    assert torch.cuda.max_memory_allocated() - before < 16 << 20  # of 70 MiB
