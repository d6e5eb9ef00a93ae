from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from brim.data import move_data_to_device
from brim.data.batches.batch import map_leaves


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Record:
    x: Tensor
    name: str


def nested():
    return {
        "tuple": (torch.arange(3), "text", 4),
        "list": [Pair(torch.ones(2), torch.zeros(1)), None],
        "record": Record(torch.ones(1), "a"),
        "ordered": OrderedDict(x=torch.ones(1)),
        "default": defaultdict(list, x=torch.ones(1)),
        "packed": pack_sequence([torch.ones(3), torch.ones(2)]),
    }


def devices(batch):
    found = set()
    map_leaves(lambda leaf: found.add(leaf.device.type) if isinstance(leaf, Tensor) else None, batch)
    return found


def test_every_tensor_of_any_nesting_is_moved():
    moved = move_data_to_device(nested(), "meta")
    moved.pop("packed")
    assert devices(moved) == {"meta"}


def test_types_and_everything_that_is_no_tensor_are_kept():
    moved = move_data_to_device(nested(), torch.device("cpu"))
    assert moved["tuple"][1:] == ("text", 4)
    assert type(moved["list"][0]) is Pair
    assert moved["list"][1] is None
    assert moved["record"] == Record(moved["record"].x, "a")
    assert type(moved["ordered"]) is OrderedDict
    assert moved["default"].default_factory is list
    assert type(moved["packed"]) is PackedSequence


def test_a_tensor_that_is_there_already_is_not_copied():
    x = torch.ones(2)
    assert move_data_to_device((x, x), "cpu")[0] is x
    assert move_data_to_device({"x": x}, "cpu")["x"] is x


@pytest.mark.parametrize("values", [(), (torch.arange(3),), (torch.arange(3), torch.ones(2, 2))])
def test_the_short_cut_for_tuples_of_tensors_gives_what_the_walk_gives(values):
    quick, walked = move_data_to_device(values, "cpu"), tuple(move_data_to_device(list(values), "cpu"))
    assert type(quick) is tuple
    assert len(quick) == len(walked)
    assert all(torch.equal(a, b) for a, b in zip(quick, walked, strict=True))


def test_the_short_cut_is_not_taken_for_a_named_tuple():
    moved = move_data_to_device(Pair(torch.ones(2), torch.zeros(1)), "cpu")
    assert type(moved) is Pair


@pytest.mark.parametrize("wrap", [lambda x: (x, x), lambda x: {"x": x}], ids=["short cut", "walk"])
@pytest.mark.parametrize(
    ("device", "asked", "given"), [("cpu", True, False), ("cuda", True, True), ("cuda", False, False)]
)
def test_copies_are_asynchronous_towards_cuda_only_and_only_if_asked(monkeypatch, wrap, device, asked, given):
    calls = []

    def to(self, target, non_blocking):
        calls.append((target.type, non_blocking))
        return self

    monkeypatch.setattr(Tensor, "to", to)
    move_data_to_device(wrap(torch.ones(1)), device, non_blocking=asked)
    assert set(calls) == {(device, given)}


def test_an_object_with_its_own_way_to_a_device_is_moved():
    class Graph:
        device = "nowhere"

        def to(self, device):
            self.device = str(device)
            return self

    assert move_data_to_device([Graph()], "cpu")[0].device == "cpu"


@pytest.mark.gpu
@pytest.mark.parametrize("pin", [False, True])
def test_a_batch_arrives_whole_on_the_gpu_and_comes_back(pin):
    batch = (torch.arange(1 << 20), torch.ones(1 << 16))
    source = tuple(x.pin_memory() for x in batch) if pin else batch
    moved = move_data_to_device(source, "cuda", non_blocking=True)
    assert all(x.is_cuda for x in moved)
    back = move_data_to_device({"x": moved[0] + 1, "y": moved[1] * 2}, "cpu")
    assert torch.equal(back["x"], batch[0] + 1)
    assert torch.equal(back["y"], batch[1] * 2)


@pytest.mark.gpu
def test_every_tensor_of_any_nesting_arrives_on_the_gpu():
    moved = move_data_to_device(nested(), "cuda")
    assert moved.pop("packed").data.is_cuda
    assert devices(moved) == {"cuda"}
