"""When two ways of computing the same count as the same, and when they do not."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from brim.engine.captured.proof.comparison import (
    OF_UPDATE,
    PER_TENSOR,
    Likeness,
    are_same,
    compare_buffers,
    compare_gradients,
    compare_losses,
    compare_updates,
)
from brim.engine.captured.proof.rounding import Rounding
from brim.engine.captured.report import Refusal

NAN, INF = float("nan"), float("inf")
FP32, BF16 = Rounding("fp32", 100), Rounding("bf16", 100)


def tensors(**values):
    return {name.replace("__", "."): torch.as_tensor(value) for name, value in values.items()}


def many(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_same_bits_are_the_same():
    assert compare_gradients(tensors(a=[1.0, NAN], b=[2.0]), tensors(a=[1.0, NAN], b=[2.0]), FP32) == 0.0


# Not at the limit itself, where rounding decides.
@given(share=st.floats(1e-3, 0.9999) | st.floats(1.0001, 3.0), numbers=st.sampled_from([FP32, BF16]))
def test_a_difference_over_all_counts_as_a_share_of_the_norm(share, numbers):
    eager = {"a": many(1, 50), "b": many(2, 30)}
    apart = {name: many(3 + len(name), *tensor.shape) for name, tensor in eager.items()}
    norm = math.hypot(*(float(tensor.norm()) for tensor in eager.values()))
    length = math.hypot(*(float(tensor.norm()) for tensor in apart.values()))
    captured = {name: eager[name] + apart[name] * (share * numbers.share * norm / length) for name in eager}
    if share < 1:
        assert compare_gradients(eager, captured, numbers) == pytest.approx(share * numbers.share, rel=1e-6)
    else:
        with pytest.raises(Refusal, match=f"{numbers.numbers} rounding allows"):
            compare_gradients(eager, captured, numbers)


def test_one_gradient_among_large_ones_is_held_against_its_own_norm():
    eager = tensors(big__weight=torch.full((1000,), 1.0), small__weight=torch.full((1000,), 0.5))
    captured = {**eager, "small.weight": eager["small.weight"] * (1 + 10 * PER_TENSOR * FP32.share)}
    with pytest.raises(Refusal, match=r"other gradients than an eager one \(small\.weight"):
        compare_gradients(eager, captured, FP32)


def test_a_gradient_that_cancels_out_is_held_against_those_of_its_module():
    """A bias before a norm: all of its gradient is rounding."""
    noise = 0.1 * FP32.share
    eager = tensors(inner__weight=torch.ones(100, 10), inner__bias=torch.full((10,), noise))
    captured = {**eager, "inner.bias": -eager["inner.bias"]}
    assert 0 < compare_gradients(eager, captured, FP32) < FP32.share
    with pytest.raises(Refusal):
        compare_gradients(eager, {**eager, "inner.bias": torch.full((10,), 100 * FP32.share)}, FP32)


@pytest.mark.parametrize("where", ["eager", "captured"])
def test_a_gradient_that_only_one_of_them_has_is_refused(where):
    less, more = tensors(a=[1.0]), tensors(a=[1.0], b=[1.0])
    with pytest.raises(Refusal, match=f"b has a gradient in {where} steps only"):
        compare_gradients(*((more, less) if where == "eager" else (less, more)), FP32)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("numbers", [FP32, BF16])
def test_numbers_that_are_bad_on_one_side_are_refused(bad, numbers):
    good, spoiled = tensors(a=[1.0, 2.0, 3.0]), tensors(a=[1.0, 2.0, bad])
    for pair in ((good, spoiled), (spoiled, good)):
        with pytest.raises(Refusal):
            compare_gradients(*pair, numbers)


def test_beside_numbers_that_are_bad_on_both_sides_the_others_are_compared():
    """A loss scale that is too large: some gradients overflow, others differ by rounding."""
    eager = tensors(a=[INF, 1.0], b=[2.0, 2.0])
    near = tensors(a=[INF, 1.0 + 1e-7], b=[2.0, 2.0])
    assert 0 < compare_gradients(eager, near, FP32) < FP32.share
    with pytest.raises(Refusal):
        compare_gradients(eager, tensors(a=[INF, 1.5], b=[2.0, 2.0]), FP32)


LARGEST = torch.finfo(torch.float32).max


@pytest.mark.parametrize(("one", "other"), [(NAN, 0.0), (0.0, NAN), (INF, LARGEST), (-LARGEST, -INF)])
def test_a_bad_number_is_not_the_number_that_stands_for_it(one, other):
    with pytest.raises(Refusal):
        compare_gradients(tensors(a=[1.0, one]), tensors(a=[1.0, other]), FP32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_formats_are_compared_in_long_ones(dtype):
    """Squares of these are beyond fp16."""
    eager = {"a": torch.full((9,), 30000.0, dtype=dtype)}
    with pytest.raises(Refusal):
        compare_gradients(eager, {"a": torch.zeros(9, dtype=dtype)}, BF16)


def test_complex_gradients_are_compared():
    eager = {"a": torch.tensor([1 + 2j, 3 + 4j])}
    assert compare_gradients(eager, {"a": eager["a"].clone()}, FP32) == 0.0
    with pytest.raises(Refusal):
        compare_gradients(eager, {"a": eager["a"] * 1j}, FP32)


def test_where_all_gradients_are_zero_nothing_may_differ():
    zero = tensors(a=[0.0, 0.0])
    assert compare_gradients(zero, tensors(a=[0.0, -0.0]), FP32) == 0.0
    with pytest.raises(Refusal):
        compare_gradients(zero, tensors(a=[0.0, 1e-30]), FP32)


def buffers(before, eager, captured, rounding=FP32):
    compare_buffers(*({"norm.mean": torch.as_tensor(one)} for one in (before, eager, captured)), rounding)


def test_buffers_may_differ_by_rounding():
    buffers([1.0], [2.0], [2.0 + FP32.share])
    with pytest.raises(Refusal, match=r"something else in norm\.mean"):
        buffers([1.0], [2.0], [2.0 + 20 * FP32.share])


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_counts_must_be_the_same(dtype):
    before, eager, other = (torch.tensor([value], dtype=dtype) for value in (0, 1, 0))
    buffers(before, eager, eager.clone())
    with pytest.raises(Refusal):
        buffers(before, eager, other, BF16)


def test_a_mean_near_zero_is_held_against_the_variance_beside_it():
    old = tensors(norm__mean=torch.zeros(4), norm__variance=torch.ones(4))
    eager = tensors(norm__mean=torch.full((4,), 1e-9), norm__variance=torch.ones(4))
    compare_buffers(old, eager, {**eager, "norm.mean": torch.full((4,), -1e-9)}, FP32)
    with pytest.raises(Refusal):
        compare_buffers(old, eager, {**eager, "norm.mean": torch.full((4,), 1e-3)}, FP32)


def test_losses_may_differ_by_rounding():
    compare_losses(2.0, 2.0 + FP32.share, 0.0, FP32)
    with pytest.raises(Refusal, match=r"another loss than an eager one \(2\.0003"):
        compare_losses(2.0, 2.0003, 0.0, FP32)


def test_a_loss_whose_terms_cancel_out_is_held_against_what_weights_do_to_it():
    compare_losses(0.0, FP32.share, 2.0, FP32)
    with pytest.raises(Refusal):
        compare_losses(0.0, FP32.share, 0.5, FP32)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_losses_that_are_bad_on_both_sides_are_the_same_and_on_one_are_not(bad):
    compare_losses(bad, bad, 0.0, FP32)
    for pair in ((1.0, bad), (bad, 1.0)):
        with pytest.raises(Refusal):
            compare_losses(*pair, 1.0, BF16)


def updates(before, eager, captured, name="weight", dtype=torch.float32):
    values = [{name: torch.tensor(one, dtype=dtype)} for one in (before, eager, captured)]
    return compare_updates(*values, ["weight"])


def test_updates_may_differ_by_the_rounding_of_their_corrections():
    assert updates([0.0], [1.0], [1.0]) == 0.0
    assert 0 < updates([0.0], [1.0], [1.0 + 0.5 * OF_UPDATE]) <= OF_UPDATE
    with pytest.raises(Refusal, match="something else of the same gradients"):
        updates([0.0], [1.0], [1.0 + 2 * OF_UPDATE])


def test_a_weight_may_be_rounded_to_its_neighbour_and_no_further():
    """The start is far from zero: what rounds is the weight, not its update."""
    after = torch.tensor(1000.0).nextafter(torch.tensor(2000.0)).item()
    updates([1000.0], [1000.0], [after])
    with pytest.raises(Refusal):
        updates([1000.0], [1000.0], [1001.0])


def test_an_update_that_was_not_made_is_refused():
    with pytest.raises(Refusal):
        updates([1.0], [1.001], [1.0])


def test_a_count_of_steps_must_be_the_same_however_large_it_is():
    updates([1e6], [1e6 + 1], [1e6 + 1], "optimizer 3 step")
    with pytest.raises(Refusal, match=r"\(optimizer 3 step: 1\.0e\+00 apart"):
        updates([1e6], [1e6 + 1], [1e6], "optimizer 3 step")


def test_nan_is_the_same_as_nan_in_its_place_only():
    one = torch.tensor([1.0, NAN])
    assert are_same(one, one.clone())
    assert not are_same(one, torch.tensor([NAN, 1.0]))
    assert not are_same(torch.zeros(2), torch.zeros(3))


def test_what_was_proven_is_said():
    assert str(Likeness(FP32)) == "gradients equal to the bit, updates to the bit"
    told = str(Likeness(FP32, 3e-7, 2e-8, tried=["the learning rate", "the clip"]))
    assert told == (
        f"gradients within 3e-07 of their norm (fp32 rounding allows {FP32.share:.0e}), updates within 2e-08 of their "
        "size, with the learning rate and the clip changed in between"
    )
