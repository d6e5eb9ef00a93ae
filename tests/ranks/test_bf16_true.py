"""Weights in bfloat16 over ranks: their gradients are added up in 32 bits, so ranks make the step of one process."""

import pytest
import torch
from rank_training import difference, net, train

ROUNDING = 2e-2  # of weights with 8 bits, after 15 steps


IN_PARTS = {"micro_batch": 2, "clip_norm": 0.5}


def train_short(strategy="auto", max_steps=15, **settings):
    return train(model=net(), strategy=strategy, precision="bf16-true", max_steps=max_steps, **settings)


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("ddp", {}), ("fsdp", IN_PARTS),
        pytest.param("ddp", IN_PARTS, marks=pytest.mark.slow), pytest.param("fsdp", {}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_ranks_train_weights_in_bf16_as_one_process_does(launch, strategy, settings):
    expected = launch(1, train_short, **settings)[0]
    found = launch(2, train_short, strategy=strategy, **settings)
    for one in found:
        assert all(tensor.dtype == torch.bfloat16 for tensor in one["weights"].values())
        assert difference(one, expected) <= ROUNDING
    assert difference(found[0], found[1]) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_run_of_ranks_resumes_to_the_bit(launch, strategy):
    expected = launch(2, train_short, strategy=strategy)[0]
    stopped = launch(2, train_short, strategy=strategy, max_steps=7)[0]
    for found in launch(2, train_short, strategy=strategy, resume=stopped["run"]):
        assert difference(found, expected) == 0.0
