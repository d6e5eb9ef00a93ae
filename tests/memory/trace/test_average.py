"""What a moving average of the weights takes on a card, against counting what the engine keeps."""

import pytest
import torch
from torch import nn

from brim.engine.state.weight_average import WeightAverage
from brim.errors import ConfigError
from brim.hardware.cards import H200
from brim.memory import forecast, largest_batch, plan
from brim.memory.allocator.allocator import rounded

WIDTH = 96


def build():
    return nn.Sequential(nn.Linear(WIDTH, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 7))


def batch(n):
    return (torch.randn(n, WIDTH),), {}


def predict(model=build, optimizer=None, **more):
    return forecast(model, batch, lambda out: out.float().sum(), optimizer, batch_size=8, card=H200, **more)


def counted(model):
    """What the engine keeps, block by block as the allocator gives them."""
    kept = WeightAverage(model, 0.9).module
    return sum(rounded(t.numel() * t.element_size()) for t in (*kept.parameters(), *kept.buffers()))


@pytest.mark.matrix(2)
@pytest.mark.parametrize("precision", ["32", "bf16", "bf16-true"])
@pytest.mark.parametrize("model", [build, build()], ids=["builder", "model"])
def test_the_average_is_a_part_of_the_forecast_to_the_byte(model, precision):
    expected = counted(build().bfloat16() if precision == "bf16-true" else build())
    without, found = predict(model, precision=precision), predict(model, precision=precision, ema=0.999)
    assert without.parts["average"] == 0
    assert found.parts["average"] == expected
    more = found.allocated - without.allocated
    assert more == expected or (precision == "bf16-true" and more > expected)  # weights are made longer, one by one
    assert sum(found.parts.values()) == found.device


def test_tied_weights_are_averaged_once():
    def tied():
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        model[1].weight = model[0].weight
        return model

    assert predict(tied, ema=0.9).parts["average"] == counted(tied())


def test_shards_are_averaged_where_they_are():
    whole = predict(lambda: nn.Linear(WIDTH, 1024, bias=False), ema=0.9)
    shards = predict(lambda: nn.Linear(WIDTH, 1024, bias=False), ema=0.9, strategy="fsdp", gpus=4)
    assert shards.parts["average"] == whole.parts["average"] // 4


def test_what_a_captured_step_keeps_does_not_grow_with_the_average():
    assert predict(ema=0.9).captured <= predict().captured


def test_an_evaluation_keeps_weights_of_16_bits_beside_their_average():
    """A model of nothing but weights, and an optimizer that needs no more than they are: then that is the peak."""
    size = 4096 * 4096

    def peak(**more):
        return forecast(
            lambda: nn.Linear(4096, 4096, bias=False), lambda n: ((torch.empty(n, 4096),), {}),
            lambda out: out.float().sum(), lambda p: torch.optim.SGD(p, lr=0.1, fused=True), batch_size=1, card=H200,
            **more,
        )  # fmt: skip

    whole, short = peak(ema=0.9), peak(ema=0.9, precision="bf16-true")
    assert whole.phase == "evaluation" and whole.parts["temporary"] == 4 * size  # one weight, while it changes places
    assert short.phase == "optimizer" and short.parts["temporary"] == 4 * size  # made longer for the average
    assert short.parts["average"] == 4 * size and short.parts["parameters"] == 2 * size


def test_plans_and_largest_batches_leave_room_for_it():
    limit = {"card": H200, "memory": "200MiB"}

    def wide():
        return nn.Linear(2048, 2048)

    def rows(n):
        return (torch.empty(n, 2048),), {}

    plain, averaged = (largest_batch(wide, rows, ema=ema, **limit) for ema in (None, 0.9))
    assert 0 < averaged < plain
    made = plan(wide, rows, batch_size=8, ema=0.9, **limit)
    assert made.forecast.parts["average"] == rounded(4 * 2048 * 2048) + rounded(4 * 2048)


@pytest.mark.parametrize("wrong", [0, 1, -1, True, "a"])
def test_a_decay_that_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigError, match="ema"):
        predict(ema=wrong)
