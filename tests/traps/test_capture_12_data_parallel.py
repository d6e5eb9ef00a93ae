"""Capture trap 12: DDP must be built on a side stream, and have rebuilt its buckets, before it can be captured.

brim exchanges gradients without DDP's reducer (tests/ranks/test_captured_ranks_gpu.py), and refuses models within it.
"""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from brim.engine.captured.report import Refusal
from brim.engine.captured.trial import check_step
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step.eager_step import EagerStep


@pytest.mark.parametrize("wrap", [DataParallel, DistributedDataParallel])
def test_a_model_within_torchs_own_wrappers_is_not_captured(alone_in_a_group, wrap):
    model = wrap(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    eager = EagerStep(loss_of(model, nn.MSELoss()), optimizer, Precision("32", torch.device("cpu")))
    with pytest.raises(Refusal, match="wrapped for several GPUs"):
        check_step(eager, model, [(torch.randn(8, 4), torch.randn(8, 1))])
