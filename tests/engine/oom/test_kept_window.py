"""Batches that users' code changes are handed out as they came."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from transformers import BatchEncoding

from brim.engine.oom.kept_window import KeptWindow, lent


def batch(start=0.0):
    return {"x": torch.arange(4.0) + start, "labels": torch.ones(4), "names": ["a", "b"]}


@pytest.mark.parametrize("kind", [dict, OrderedDict, BatchEncoding])
def test_what_is_taken_out_of_a_container_is_there_again(kind):
    kept, original = KeptWindow(), kind(batch())
    kept.keep([original])
    for _ in range(2):
        (mine,) = kept.lend()
        assert mine.pop("labels").eq(1).all()
        mine["x"] = None
    assert set(original) == {"x", "labels", "names"} and original["x"] is not None


def test_lists_within_a_batch_are_ones_own_and_its_tensors_are_not_copied():
    original = {"inner": [torch.ones(2), torch.zeros(2)], "pair": (torch.ones(2), ["a"])}
    mine = lent(original)
    mine["inner"].pop()
    mine["pair"][1].append("b")
    assert len(original["inner"]) == 2 and original["pair"][1] == ["a"]
    assert mine["inner"][0] is original["inner"][0]


def test_a_tensor_and_a_tuple_of_tensors_are_lent_as_they_are():
    one, pair = torch.ones(3), (torch.ones(3), torch.zeros(3))
    assert lent(one) is one and lent(pair) is pair


def test_tensors_that_were_written_to_are_put_back():
    kept, window = KeptWindow(), [batch(), batch(5.0)]
    kept.keep(window)
    (first, second) = kept.lend()
    first["x"].sub_(0.5).mul_(2)
    second["x"][1:3].zero_()
    assert kept.is_changed()
    assert kept.restore()
    assert torch.equal(window[0]["x"], batch()["x"]) and torch.equal(window[1]["x"], batch(5.0)["x"])
    assert not kept.is_changed()


def test_what_was_written_to_once_is_copied_in_every_step_from_then_on():
    kept = KeptWindow()
    for step in range(6):
        window = [batch()]
        kept.keep(window)
        window[0]["x"].add_(1)
        assert kept.restore(), step
        assert torch.equal(window[0]["x"], batch()["x"])
        window[0]["x"].add_(1)
        kept.forget()


def test_a_write_in_a_step_that_worked_is_remembered():
    kept = KeptWindow()
    for _ in range(6):
        kept.keep([made := batch()])
        made["x"].add_(1)
        kept.forget()
    assert kept.is_written_to
    kept.keep([made := batch()])
    made["x"].add_(1)
    assert kept.restore()


def test_a_write_that_comes_late_is_not_put_back_and_that_is_said():
    kept = KeptWindow()
    for _ in range(4):
        kept.keep([made := batch()])
        assert kept.restore()
        kept.forget()
    kept.keep([made])
    made["x"].add_(1)
    assert not kept.restore()
    kept.keep([made])
    made["x"].add_(1)
    assert kept.restore()  # once seen, copies are made


def test_without_memory_for_copies_a_change_is_seen_at_least():
    kept = KeptWindow()
    kept.keep([made := batch()], copies=False)
    assert kept.restore()
    made["x"].add_(1)
    assert not kept.restore()


def test_slices_of_a_batch_are_the_batch():
    kept, window = KeptWindow(), [(torch.arange(4.0), torch.ones(4))]
    kept.keep(window)
    window[0][0][2:].mul_(0)
    assert kept.restore()
    assert window[0][0].tolist() == [0, 1, 2, 3]


def test_objects_of_the_users_own_are_handed_through():
    kept, own = KeptWindow(), SimpleNamespace(x=torch.ones(2))
    kept.keep([own])
    assert kept.lend() == [own]
    assert kept.restore()


RAGGED = [torch.randn(2, 3), torch.randn(1, 3)]


@pytest.mark.parametrize(
    "tensor",
    [torch.nested.nested_tensor(RAGGED, layout=torch.jagged), torch.eye(3).to_sparse()],
    ids=["nested", "sparse"],
)
def test_nested_and_sparse_tensors_are_compared_too(tensor):
    kept = KeptWindow()
    kept.keep([(tensor, torch.ones(2))])
    assert kept.restore()
    tensor.values().data.mul_(2) if tensor.layout is not torch.sparse_coo else tensor._values().mul_(2)
    kept.forget()
    assert kept.is_written_to
