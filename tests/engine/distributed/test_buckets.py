import pytest
import torch
from torch import nn

from brim.engine.distributed import buckets
from brim.engine.distributed.buckets import Bucket, bucket_bytes, carried_as, in_buckets


def parameters(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    made = [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]
    for parameter in made:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype)
    return made


def test_the_last_parameters_come_first_and_a_bucket_has_a_size(monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 40)
    one, two, three, four = parameters(4, 5, 5, 20)
    assert [list(map(id, part)) for part in in_buckets([one, two, three, four])] == [
        [id(four)], [id(three), id(two)], [id(one)],
    ]  # fmt: skip


def test_numbers_of_different_types_are_not_sent_together():
    (one,), (two,), (three,) = parameters(3), parameters(3, dtype=torch.float64), parameters(3, dtype=torch.float64)
    assert [len(part) for part in in_buckets([one, two, three])] == [2, 1]


@pytest.mark.parametrize(
    ("dtype", "carried"),
    [(torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float64, torch.float64)],
)
def test_gradients_of_sixteen_bits_are_carried_in_more(dtype, carried):
    (parameter,) = parameters(6, dtype=dtype)
    assert carried_as(parameter) == carried and bucket_bytes(parameter) == 6 * carried.itemsize


@pytest.mark.parametrize("has_memory", [False, True])
def test_what_is_filled_in_is_handed_out_scaled(has_memory):
    made = parameters((2, 3), 4)
    expected = [parameter.grad * 3 * 0.5 for parameter in made]
    bucket = Bucket(made, torch.empty(64, dtype=torch.uint8) if has_memory else None)
    bucket.fill(3.0)
    for parameter in made:
        parameter.grad = None
    bucket.hand_out(0.5, {id(made[0])})
    assert torch.equal(made[0].grad, expected[0]) and made[1].grad is None  # not chosen
    bucket.hand_out(1.0, {id(made[1])})
    assert torch.equal(made[1].grad, expected[1])


def test_a_gradient_that_is_not_there_counts_as_nothing():
    first, second = parameters(3, 2)
    bucket, second.grad = Bucket([first, second]), None
    bucket.flat.fill_(torch.nan)
    bucket.fill(2.0)
    assert bucket.flat.tolist() == [*(2 * first.grad).tolist(), 0, 0]


def test_a_rank_without_samples_sends_zeros_whatever_its_gradients_are():
    (parameter,) = parameters(3)
    parameter.grad.fill_(torch.inf)
    bucket = Bucket([parameter])
    bucket.fill(0.0)
    assert bucket.flat.tolist() == [0, 0, 0]
