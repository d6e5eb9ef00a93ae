"""A model of fake tensors, be it built or copied."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import brim
from brim.errors import ModelError


def rows(n):
    return (torch.zeros(n, 4),), {}


def test_a_model_that_exists_is_copied_and_left_alone():
    model = nn.Linear(4, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    brim.forecast(model, rows, batch_size=2, card="NVIDIA H200")
    assert not any(isinstance(parameter, FakeTensor) for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_function_that_hands_over_a_model_of_before_is_a_model_that_exists():
    model = nn.Linear(4, 4)
    built = brim.forecast(lambda: nn.Linear(4, 4), rows, batch_size=2, card="NVIDIA H200")
    assert brim.forecast(lambda: model, rows, batch_size=2, card="NVIDIA H200").parts == built.parts


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: "a model", "model= built a str; it must build a torch.nn.Module"),
        (lambda: 1 / 0, r"building the model failed .*ZeroDivisionError"),
    ],
)
def test_what_is_no_model_is_refused_in_a_sentence(model, said):
    with pytest.raises(ModelError, match=said):
        brim.forecast(model, rows, batch_size=2, card="NVIDIA H200")


def test_a_sparse_parameter_is_refused_by_its_name():
    model = nn.Linear(4, 4)
    model.mask = nn.Parameter(torch.eye(4).to_sparse())
    with pytest.raises(ModelError, match="mask is a sparse tensor"):
        brim.forecast(model, rows, batch_size=2, card="NVIDIA H200")
