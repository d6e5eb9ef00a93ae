"""Lazy modules are forecast as the modules that they become."""

import pytest
import torch
from torch import nn

from brim.errors import ModelError
from brim.hardware.cards import H200
from brim.memory import forecast

LAZY = [
    (lambda: nn.LazyLinear(16), lambda: nn.Linear(8, 16), (8,)),
    (lambda: nn.LazyBatchNorm1d(), lambda: nn.BatchNorm1d(8), (8,)),
    (lambda: nn.LazyConv2d(16, 3), lambda: nn.Conv2d(4, 16, 3), (4, 9, 9)),
    (
        lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)),
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(196, 2)),
        (3, 9, 9),
    ),
]


@pytest.mark.matrix(5)
@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("exists", [False, True], ids=["built", "exists"])
@pytest.mark.parametrize(("lazy", "plain", "shape"), LAZY, ids=["linear", "norm", "convolution", "several"])
def test_a_lazy_model_is_forecast_as_the_plain_one(lazy, plain, shape, exists: bool, precision: str) -> None:
    def predict(model):
        model = model() if exists else model
        return forecast(model, lambda n: ((torch.randn(n, *shape),), {}), batch_size=4, card=H200, precision=precision)

    assert predict(lazy) == predict(plain)


def test_a_lazy_module_that_never_runs_is_told() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.spare = nn.Linear(8, 8), nn.LazyLinear(8)

        def forward(self, x):
            return self.layer(x)

    with pytest.raises(
        ModelError, match=r"^spare\.weight has no shape after a forward pass; leave out the lazy module"
    ):
        forecast(Unused, lambda n: ((torch.randn(n, 8),), {}), batch_size=4, card=H200)


def test_lazy_modules_outside_are_as_before() -> None:
    forecast(lambda: nn.LazyLinear(8), lambda n: ((torch.randn(n, 8),), {}), batch_size=4, card=H200)
    assert nn.LazyLinear(8)(torch.randn(2, 5)).shape == (2, 8)
