import pytest
import torch
from torch import nn

from brim.engine.splitting import gradient_trial


@pytest.mark.parametrize("kinds", [(torch.float32,), (torch.bfloat16, torch.float32), (torch.complex64, torch.float32)])
def test_numbers_of_gradients_are_those_of_each_one_after_the_other_and_zeros_where_there_is_none(monkeypatch, kinds):
    monkeypatch.setattr(gradient_trial, "SKETCH", 5)
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(3, 4, dtype=kind)) for kind in kinds for _ in range(2)]
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    gradients[1] = None
    expected = []
    for gradient in gradients:  # each third number of the twelve
        if gradient is None:
            expected += [0.0] * 4
            continue
        real = torch.view_as_real(gradient).sum(-1) if gradient.is_complex() else gradient
        expected += real.flatten()[::3].double().tolist()
    found = gradient_trial.sketch_of(gradients, parameters)
    assert found.dtype == torch.float64
    assert found.tolist() == expected
