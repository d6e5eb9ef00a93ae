"""Trap 24: index overflows and grid limits poison the context; they are not running out of memory."""

import pytest
import torch

import brim


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: invalid configuration argument",
        "CUDA error: an illegal memory access was encountered",
        "canUse32BitIndexMath(input) && canUse32BitIndexMath(output) INTERNAL ASSERT FAILED",
        "CUDA error: device-side assert triggered",
    ],
)
def test_errors_of_other_limits_are_not_tried_again(net, data, said):
    tries = []

    def loss(model, batch):
        tries.append(1)
        raise RuntimeError(said)

    model = net()
    with pytest.raises(RuntimeError, match=said[:20].replace("(", r"\(")):
        brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)(data())
    assert len(tries) == 1
