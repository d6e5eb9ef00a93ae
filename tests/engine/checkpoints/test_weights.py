from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn

from brim.engine.checkpoints.weights import check_model_path, load_weights, own_names, save_weights
from brim.engine.state.host_copy import HostModel
from brim.engine.state.weight_names import WRAPPERS
from brim.errors import ConfigError, RunFolderError


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


class HasModule(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        self.module = net(seed)


def test_a_full_disk_is_told_as_one(tmp_path, monkeypatch):
    def full(value, path):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RunFolderError, match=r"model.pth: the disk is full.*; free some space"):
        save_weights(net(), tmp_path / "model.pth")


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@given(st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=3), st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=2))
def test_names_from_any_nesting_of_wrappers_are_the_models_own(outer, inner):
    own = net().state_dict()
    wrapped = {}
    for name, tensor in own.items():
        first, rest = name.split(".", 1)
        wrapped[".".join([*outer, first, *inner, rest])] = tensor
    assert own_names(wrapped, own).keys() == own.keys()


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_fsdp_wrapped_module."])
@pytest.mark.parametrize("make", [net, HasModule])
def test_a_foreign_checkpoint_loads_as_it_is(tmp_path, prefix, make):
    source, target = make(0), make(1)
    torch.save({prefix + name: tensor for name, tensor in source.state_dict().items()}, tmp_path / "w.pth")
    load_weights(target, tmp_path / "w.pth")
    assert same(source, target)


def test_a_real_submodule_called_module_survives_a_round_trip(tmp_path):
    source, target = HasModule(0), HasModule(1)
    for suffix in ("w.safetensors", "w.pth"):
        save_weights(source, tmp_path / suffix)
        load_weights(target, tmp_path / suffix)
        assert same(source, target)
    assert all(name.startswith("module.") for name in target.state_dict())


def test_weights_inside_the_state_dict_of_a_trainer_are_found(tmp_path):
    source, target = net(0), net(1)
    torch.save({"state_dict": source.state_dict(), "epoch": 3}, tmp_path / "w.pt")
    load_weights(target, tmp_path / "w.pt")
    assert same(source, target)


def test_mismatches_name_keys_and_shapes(tmp_path):
    other = nn.Sequential(nn.Linear(3, 5), nn.Linear(4, 2, bias=False), nn.Linear(2, 2))
    save_weights(other, tmp_path / "w.safetensors")
    with pytest.raises(RunFolderError) as caught:
        load_weights(net(), tmp_path / "w.safetensors")
    said = str(caught.value)
    assert "it lacks 1.bias" in said
    assert "it also has 2." in said
    assert "0.weight is (5, 3) there and (4, 3) here" in said


def test_a_refused_file_changes_nothing(tmp_path):
    target, before = net(1), net(1)
    save_weights(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)), tmp_path / "w.safetensors")
    with pytest.raises(RunFolderError):
        load_weights(target, tmp_path / "w.safetensors")
    assert same(target, before)


@pytest.mark.parametrize("content", [b"", b"not weights", b"\x80\x04N."])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_files_that_hold_no_weights_are_refused(tmp_path, content, suffix):
    (tmp_path / f"w{suffix}").write_bytes(content)
    with pytest.raises(RunFolderError, match="cannot load weights"):
        load_weights(net(), tmp_path / f"w{suffix}")


def test_weights_that_are_parts_of_one_block_are_written_each(tmp_path):
    """As cuDNN lays out the weights of an LSTM on a GPU."""
    source, target = nn.LSTM(3, 4, 2), nn.LSTM(3, 4, 2)
    block, place = torch.empty(sum(p.numel() for p in source.parameters())), 0
    for parameter in source.parameters():
        part = block[place : place + parameter.numel()].view_as(parameter)
        part.copy_(parameter.detach())
        parameter.data, place = part, place + parameter.numel()
    assert len({p.untyped_storage().data_ptr() for p in source.parameters()}) == 1
    for weights in (source, HostModel(source)):
        save_weights(weights, tmp_path / "w.safetensors")
        load_weights(target, tmp_path / "w.safetensors")
        assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))


def test_tied_weights_are_written_once(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    save_weights(model, tmp_path / "w.safetensors")
    with safe_open(tmp_path / "w.safetensors", "pt") as saved:
        assert set(saved.keys()) == {"0.weight", "0.bias", "1.bias"}
        assert saved.metadata()["1.weight"] == "0.weight"


@pytest.mark.parametrize("place", ["/proc/model.pt", "/proc/new/model.safetensors", "/sys/new/model.pth"])
def test_a_place_where_not_even_root_may_write_is_refused_before_training(place):
    if not Path(place).parents[-2].exists():
        pytest.skip("there is no such folder here")
    with pytest.raises(ConfigError, match=r"model_path=.* cannot be written"):
        check_model_path(place)


def test_a_place_that_is_tried_is_left_as_it_was(tmp_path):
    check_model_path(tmp_path / "new" / "deeper" / "model.pt")
    check_model_path(tmp_path / "model.pt")
    assert list(tmp_path.iterdir()) == []


class FilledLate(nn.Module):
    """A buffer that is None until the first forward pass."""

    def __init__(self, features=2):
        super().__init__()
        self.linear = nn.Linear(features, 1)
        self.register_buffer("mean", None)

    def forward(self, x):
        self.mean = x.mean(0)
        return self.linear(x - self.mean)


def test_a_buffer_that_a_forward_pass_has_filled_is_loaded_into_a_model_that_has_made_none(tmp_path):
    trained, path = FilledLate(), tmp_path / "model.safetensors"
    trained(torch.ones(3, 2))
    save_weights(trained, path)
    fresh, other = FilledLate(), FilledLate(3)
    load_weights(fresh, path)
    assert fresh.mean.tolist() == [1, 1]
    with pytest.raises(RunFolderError, match="of another shape"):
        load_weights(other, path)
    assert other.mean is None
