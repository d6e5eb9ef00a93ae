import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from brim.data.loader import Loader
from brim.data.reading.hand_over import LONGEST, ByValue, collate_short, to_hand_over

Point = namedtuple("Point", "x y")


def handed_over(batch):
    return pickle.loads(pickle.dumps(to_hand_over(batch)))


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 1)])
def test_a_short_tensor_arrives_as_it_was_and_can_be_written_to(dtype, shape):
    tensor = torch.randn(shape).mul(3).to(dtype)
    arrived = handed_over((tensor,))[0]
    assert isinstance(to_hand_over((tensor,))[0], ByValue)
    assert (arrived.dtype, arrived.shape, arrived.is_contiguous()) == (dtype, tensor.shape, True)
    assert torch.equal(arrived, tensor)
    arrived.zero_()


@pytest.mark.parametrize("size", [1, 37, 1000, 100_000])
def test_what_arrives_lies_where_torch_puts_tensors(size):
    (arrived,) = handed_over((torch.arange(size),))
    assert arrived.data_ptr() % 64 == torch.empty(size, dtype=torch.int64).data_ptr() % 64 == 0


def test_containers_and_what_is_no_tensor_stay_as_they_are():
    batch = {"a": Point(torch.arange(2), ["text"]), "b": [1, None, np.arange(3)]}
    arrived = handed_over(batch)
    assert arrived["a"].x.tolist() == [0, 1]
    assert type(arrived["a"]) is Point
    assert arrived["b"][:2] == [1, None]


long_one = torch.zeros(LONGEST + 1, dtype=torch.uint8)
whole = torch.arange(12).reshape(3, 4)


class Named(Tensor):
    pass


@pytest.mark.parametrize(
    "tensors",
    [
        (long_one,),
        (whole.t(),),  # not contiguous
        (whole[:2],),  # a part of something larger
        (whole, whole),  # one tensor twice: writing to one is writing to the other
        (whole, whole.view(12)),
        (torch.zeros(0),),
        (torch.zeros(2).as_subclass(Named),),
        (nn.Parameter(torch.zeros(2)),),
        (torch.zeros(2, 2).to_sparse(),),
        (torch.zeros(2, dtype=torch.complex64).conj(),),
    ],
    ids=str,
)
def test_what_is_more_than_its_numbers_goes_as_torch_sends_it(tensors):
    assert all(sent is tensor for sent, tensor in zip(to_hand_over(tensors), tensors, strict=True))


def test_samples_are_put_together_as_torch_does_it():
    samples = [({"x": torch.full((2, 3), float(n)), "y": n}, np.arange(n, n + 2), f"t{n}") for n in range(3)]
    assert str(collate_short(samples)) == str(default_collate(samples))


def test_samples_of_different_shapes_fail_as_with_torch():
    with pytest.raises(RuntimeError, match="equal size"):
        collate_short([torch.zeros(2), torch.zeros(3)])


def test_a_way_of_the_users_to_put_tensors_together_is_kept(monkeypatch):
    monkeypatch.setitem(torch_collate.default_collate_fn_map, Tensor, lambda tensors, *, collate_fn_map=None: "mine")
    assert collate_short([torch.zeros(2)]) == "mine"


class Mixed:
    """A short part and one that is too long to be sent by value."""

    def __len__(self):
        return 6

    def __getitem__(self, number):
        return torch.full((300_000,), number % 256, dtype=torch.uint8), torch.tensor([number / 3]), number


def test_workers_give_the_batches_of_this_process():
    here, there = (list(Loader(Mixed(), 4, shuffle=True, num_workers=workers)) for workers in (0, 1))
    for one, other in zip(here, there, strict=True):
        for part, same in zip(one, other, strict=True):
            assert torch.equal(part, same)
            assert part.dtype == same.dtype
            same.add_(1)  # its own memory
