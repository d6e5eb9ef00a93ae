"""What functions remember of a forecast is gone after it."""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from brim.errors import ModelError
from brim.memory import forecast

CACHES = [functools.lru_cache, functools.lru_cache(maxsize=4), functools.cache]


class Rotated(nn.Module):
    """A layer behind a table that is computed once for each width."""

    def __init__(self, table: Callable[..., object]) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(8, 8), table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cosine, _ = self.table(x.shape[-1], device=x.device)
        return self.layer(x * cosine)


def remembering(cache: Callable[..., object]) -> functools._lru_cache_wrapper:
    """Tables, on whatever device they are wanted."""

    @cache
    def table(width: int, device: torch.device | None = None) -> tuple[torch.Tensor, int]:
        return torch.arange(width, device=device).cos(), width

    return table


def forecast_of(table: Callable[..., object], model: Callable[..., nn.Module] = Rotated) -> int:
    made = forecast(lambda: model(table), lambda n: ((torch.rand(n, 8),), {}), batch_size=4, card="NVIDIA H200")
    return made.allocated


@pytest.mark.parametrize("cache", CACHES, ids=["plain", "bounded", "unbounded"])
def test_no_fake_tensor_stays_in_a_cache(cache: Callable[..., object]) -> None:
    table = remembering(cache)
    first = forecast_of(table)
    assert table.cache_info().currsize == 0
    assert forecast_of(table) == first


def test_nor_does_one_where_the_forecast_fails() -> None:
    class Failing(Rotated):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(super().forward(x).shape)

    table = remembering(functools.cache)
    with pytest.raises(ModelError, match="ValueError"):
        forecast_of(table, Failing)
    assert table.cache_info().currsize == 0


def test_caches_without_fake_tensors_stay_as_they_are() -> None:
    numbers, tables = functools.cache(lambda x: x + 1), remembering(functools.cache)
    number, (cosine, _) = numbers(1), tables(8)
    forecast_of(remembering(functools.cache))
    assert (numbers.cache_info().currsize, number) == (1, numbers(1))
    assert tables(8)[0] is cosine
