import hashlib

import pytest
import torch
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from brim.engine.state import fingerprint
from brim.engine.state.fingerprint import fingerprints, has_fingerprint, mixed_sums, sha256_of

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def of(tensor):
    return fingerprints({"one": tensor})["one"]


def summed(tensor):
    return mixed_sums(tensor).tolist()


LOOKS = [of, summed]  # as on the host, and as on a GPU: integers are the same there


def by_hand(words):
    """The two sums, with Python's integers."""
    first = second = 0
    mask = (1 << 64) - 1
    for place, word in enumerate(words):
        value = (word + place * fingerprint.STRIDE) & mask
        value ^= value >> 33
        value = value * fingerprint.FIRST & mask
        value ^= value >> 33
        value = value * fingerprint.SECOND & mask
        value ^= value >> 33
        first += value
        value = value * fingerprint.FIRST & mask
        second += value ^ value >> 29
    return [fingerprint.wrapped(first), fingerprint.wrapped(second)]


@examples(50)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 7))
def test_the_sums_are_those_of_the_formula_whatever_is_read_at_a_time(words, at_a_time):
    tensor = torch.tensor(words, dtype=torch.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "WORDS", at_a_time)
        assert summed(tensor) == by_hand(words)


def test_on_the_host_it_is_the_sha_256_of_the_bytes():
    tensor = torch.arange(6, dtype=torch.float32).view(2, 3).t()
    expected = hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
    assert sha256_of({"one": tensor}) == {"one": expected}
    assert of(tensor) == f"torch.float32 (3, 2) {expected}"
    large = {str(number): torch.full((1 << 17,), number) for number in range(5)}  # by several threads
    assert sha256_of(large) == {n: hashlib.sha256(t.numpy().tobytes()).hexdigest() for n, t in large.items()}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 3, 8, 1001])
def test_any_number_that_changes_is_seen(look, dtype, size):
    tensor = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(0)).to(dtype)
    before = look(tensor)
    for place in {0, size // 2, size - 1}:
        tensor.data[place] = 1 - tensor[place].to(torch.int64)  # as no version counts it
        assert look(tensor) != before
        tensor.data[place] = 1 - tensor[place].to(torch.int64)
    assert look(tensor) == before


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_changes_that_cancel_in_a_plain_sum_are_seen(look, dtype):
    tensor = torch.randn(64, dtype=dtype, generator=torch.Generator().manual_seed(0))
    changed = {"as it was": tensor, "signs": tensor.clone(), "order": tensor.flip(0), "zeros": tensor.clone()}
    changed["signs"][:2].neg_()
    changed["all signs"] = -tensor
    changed["two turned"] = tensor[[1, 0, *range(2, 64)]]
    changed["longer"] = torch.cat([tensor, torch.zeros(1, dtype=dtype)])
    changed["zeros"][0] = 0.0
    changed["minus zero"] = changed["zeros"].clone()
    changed["minus zero"][0] = -0.0
    assert len({str(look(one)) for one in changed.values()}) == len(changed)


def test_the_same_bytes_as_another_dtype_or_shape_are_something_else():
    zeros = torch.zeros(4, 2)
    found = [of(one) for one in (zeros, zeros.view(2, 4), zeros.view(torch.int32), zeros.view(8))]
    assert len(set(found)) == 4


def test_tied_tensors_and_views_at_odd_places_are_read():
    block = torch.arange(33, dtype=torch.uint8)
    views = {"a": block[1:17], "tied": block[1:17], "b": block[2:18], "none": block[:0], "a alone": block[1:17].clone()}
    found = fingerprints(views)
    assert found["a"] == found["tied"] == found["a alone"] != found["b"]
    assert summed(views["a"]) == summed(views["a alone"]) != summed(views["b"])


def test_what_is_not_plain_numbers_in_memory_has_none():
    plain = [torch.ones(2), nn.Parameter(torch.ones(2)), torch.ones(2, 3).t(), torch.ones(()), torch.empty(0)]
    assert all(has_fingerprint(one) for one in plain)
    odd = [torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2, dtype=torch.complex64).conj()]
    assert not any(has_fingerprint(one) for one in odd)


@pytest.mark.gpu
def test_a_gpu_comes_to_the_sums_of_the_host(monkeypatch):
    monkeypatch.setattr(fingerprint, "WORDS", 1000)
    tensor = torch.randn(12_345)
    moved = tensor.cuda()
    assert summed(moved) == summed(tensor)
    before = of(moved)
    assert before == of(tensor.cuda()) and "mixed" in before
    moved.data[777] += 1
    assert of(moved) != before


@pytest.mark.gpu
def test_a_full_gpu_is_read_through_the_host(monkeypatch):
    tensor, real = torch.randn(1000), mixed_sums
    expected = of(tensor.cuda())

    def full(one):
        if one.is_cuda:
            raise torch.OutOfMemoryError("no room")
        return real(one)

    monkeypatch.setattr(fingerprint, "mixed_sums", full)
    assert of(tensor.cuda()) == expected
