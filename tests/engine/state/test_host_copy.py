"""Copies on the host: other memory, the same values, the same sharing."""

import torch
from torch import nn

from brim.engine.state.host_copy import HostModel, bytes_of, host_copy


def test_a_copy_does_not_follow_its_source():
    source = {"a": torch.arange(6.0).reshape(2, 3).t(), "n": 3, "list": [torch.ones(2), "text", None]}
    copied = host_copy(source)
    source["a"].zero_()
    source["list"][0].zero_()
    assert torch.equal(copied["a"], torch.arange(6.0).reshape(2, 3).t())
    assert copied["a"].stride() == source["a"].stride()
    assert torch.equal(copied["list"][0], torch.ones(2))
    assert copied["list"][1:] == ["text", None] and copied["n"] == 3


def test_what_shared_memory_shares_it_in_the_copy():
    base = torch.arange(10.0)
    copied = host_copy({"all": base, "part": base[2:5]})
    assert copied["part"].untyped_storage().data_ptr() == copied["all"].untyped_storage().data_ptr()
    assert torch.equal(copied["part"], base[2:5])
    assert copied["all"].untyped_storage().data_ptr() != base.untyped_storage().data_ptr()


def test_empty_and_unusual_tensors():
    copied = host_copy([torch.empty(0, 3), torch.empty(0), torch.eye(2).to_sparse(), torch.tensor(3, dtype=torch.int8)])
    assert copied[0].shape == (0, 3) and copied[1].shape == (0,)
    assert torch.equal(copied[2].to_dense(), torch.eye(2))
    assert copied[3].item() == 3 and copied[3].dtype == torch.int8


def test_a_host_model_keeps_ties_and_its_moment():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[1].weight = model[0].weight
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kept = HostModel(model).state_dict()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert kept.keys() == before.keys()
    assert all(torch.equal(kept[name], before[name]) for name in before)
    assert kept["0.weight"].data_ptr() == kept["1.weight"].data_ptr()


def test_bytes_are_counted_through_containers():
    assert bytes_of({"a": torch.ones(4), "b": [torch.ones(2, dtype=torch.int64), ("x", 1)]}) == 32
