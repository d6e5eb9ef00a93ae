"""An evaluation of more samples than go through the model in training: said where it takes more than the steps."""

import pytest
import torch
from torch import nn

from brim.errors import ConfigError, ModelError
from brim.hardware.cards import H200
from brim.memory import forecast, plan

MIB = 1 << 20
WIDTH = 1024


class Scores(nn.Module):
    """A layer, and in an evaluation alone a look at all of a sample's scores."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        assert torch.is_grad_enabled() == self.training
        return self.layer(x)


def rows(n: int):
    return (torch.randn(n, WIDTH),), {}


def loss(output):
    return output.sum()


def predict(batch_size: int = 64, **more):
    return forecast(Scores, rows, loss, batch_size=batch_size, card=H200, **more)


def planned(batch_size: int = 64, **more):
    return plan(Scores, rows, loss, batch_size=batch_size, card=H200, **more)


def test_an_evaluation_stands_beside_weights_gradients_state_and_the_last_batch() -> None:
    samples = 64 * 1024
    found = predict(evaluation=samples)
    assert found.phase == "evaluation"
    standing = sum(found.parts[part] for part in ("parameters", "gradients", "optimizer"))
    assert standing >= 4 * 4 * WIDTH * WIDTH
    batches = 4 * WIDTH * (samples + 64)
    assert batches <= found.parts["activations"] < batches + MIB
    assert 4 * WIDTH * samples <= found.parts["temporary"] < 4 * WIDTH * samples + MIB  # what the layer gives


def test_under_autocast_it_computes_in_16_bits() -> None:
    whole, short = (predict(precision=precision, evaluation=64 * 1024) for precision in ("32", "bf16"))
    assert short.phase == "evaluation"
    assert short.parts["temporary"] != whole.parts["temporary"]


def test_one_of_as_many_samples_changes_nothing() -> None:
    assert predict(evaluation=64).allocated == predict().allocated
    assert planned(evaluation=64).evaluation is None


def test_a_shard_evaluates_whole_activations() -> None:
    whole, shard = predict(evaluation=64 * 1024), predict(evaluation=64 * 1024, strategy="fsdp", gpus=4)
    assert shard.parts["temporary"] == whole.parts["temporary"]


def test_a_plan_says_where_it_takes_more_and_leaves_the_micro_batch_as_it_was() -> None:
    without, made = planned(memory="1GiB"), planned(memory="1GiB", evaluation=16 * 1024)
    assert (made.micro_batch, made.forecast) == (without.micro_batch, without.forecast)
    assert without.evaluation is None
    assert made.evaluation is not None and made.evaluation.reserved > made.forecast.reserved
    assert made.reasons[-1].startswith("an evaluation of 16,384 samples at once takes more than the steps: ")
    assert made.reasons[-1].endswith("reserved, which fits")
    assert made.as_json()["evaluation"]["peak_in"] == "evaluation"


def test_one_that_does_not_fit_is_told_and_training_is_planned() -> None:
    made = planned(memory="1GiB", evaluation=1 << 20)
    assert made.reasons[-1].endswith("reserved, which does not fit: evaluate in smaller batches")
    assert made.slices == 1


def test_one_of_a_whole_batch_beside_micro_batches_may_take_more() -> None:
    made = planned(100_000, memory="1GiB", evaluation=100_000)
    assert made.slices > 1
    assert made.evaluation is not None


def test_an_error_in_it_is_told_as_that_of_an_evaluation() -> None:
    class TrainsOnly(Scores):
        def forward(self, x):
            if not self.training:
                raise ValueError("in training alone")
            return self.layer(x)

    with pytest.raises(ModelError, match=r"^the forward pass of an evaluation failed at .*: in training alone"):
        forecast(TrainsOnly, rows, loss, batch_size=8, card=H200, evaluation=8)


@pytest.mark.parametrize("wrong", [0, 2.5, True])
def test_a_number_of_samples_that_is_none_is_refused(wrong) -> None:
    with pytest.raises(ConfigError, match=r"^evaluation="):
        predict(evaluation=wrong)
