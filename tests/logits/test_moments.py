"""A moment ends when something is written into the tensors, by torch's count or by an optimizer's step."""

import torch
from torch import nn

from brim.engine.components.precision import Precision
from brim.logits.moments import moment_of


def test_a_fused_optimizer_of_a_run_ends_it_though_torch_does_not_count_its_writing():
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)
    weight.grad = torch.ones(3)
    before = moment_of(weight, None)
    assert before == moment_of(weight, None)
    Precision("32", torch.device("cpu")).step(optimizer)
    assert before != moment_of(weight, None)


def test_tensors_of_inference_are_not_asked():
    with torch.inference_mode():
        hidden = torch.ones(2)
    assert moment_of(hidden) == moment_of(hidden)
