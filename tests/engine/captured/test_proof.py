"""When two ways of making the same steps count as the same, and when they do not."""

from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from brim.engine.captured.proof import LOSS_SHARE, SHARE, SPREAD, Outcome, compare
from brim.engine.captured.report import Refusal

NAN, INF = float("nan"), float("inf")


def compared(start, eager, again=None, captured=None, losses=((1.0,), (1.0,), (1.0,))):
    """Compare states of one tensor each; by default everything is as eager."""
    again = eager if again is None else again
    captured = eager if captured is None else captured
    tensors = [torch.as_tensor(one) for one in (start, eager, again, captured)]
    copies = [SimpleNamespace(state=SimpleNamespace(named={"weight": None}), copies=[one]) for one in tensors]
    outcomes = [Outcome(copy, list(loss)) for copy, loss in zip(copies[1:], losses, strict=True)]
    return compare(copies[0], *outcomes)


def test_the_same_bits_are_the_same():
    assert compared([0.0, 0.0], [1.0, 2.0]) == "to the bit"


def test_rounding_is_told_as_a_share_of_the_way():
    """The start is far from zero: it is the way that counts, not the size."""
    assert compared([1000.0], [1001.0], captured=[1001.0005]) == "within 5e-04 of the way"


def test_more_than_rounding_is_refused_by_name():
    with pytest.raises(Refusal, match=r"\(weight: .* apart after a way of 1\.0e\+00; eager differs from itself by 0"):
        compared([1000.0], [1001.0], captured=[1001.0 + 3 * SHARE])


def test_a_step_that_was_not_made_is_refused():
    with pytest.raises(Refusal, match="another result"):
        compared([1.0], [1.001], captured=[1.0])


def test_what_stood_still_in_eager_must_stand_still():
    with pytest.raises(Refusal):
        compared([1.0], [1.0], captured=[1.0 + 1e-6])


def test_eager_steps_that_differ_from_each_other_widen_what_is_allowed():
    spread = 0.01
    apart = 0.9 * SPREAD * spread
    assert compared([0.0], [1.0], again=[1.0 + spread], captured=[1.0 + apart]).startswith("within")
    with pytest.raises(Refusal):
        compared([0.0], [1.0], again=[1.0 + spread], captured=[1.0 + 1.2 * SPREAD * spread])


@given(
    way=st.floats(1e-3, 1e3),
    spread=st.floats(0, 1e-2),
    apart=st.floats(1e-6, 1),
)
def test_the_larger_of_both_limits_decides(way, spread, apart):
    limit = max(SPREAD * spread, SHARE * way)
    if abs(apart - limit) < 1e-9 * limit:
        return
    values = [torch.tensor([value], dtype=torch.float64) for value in (0.0, way, way + spread, way + apart)]
    apart, limit = float(values[3] - values[1]), max(SPREAD * float(values[2] - values[1]), SHARE * way)
    if apart <= limit:
        assert compared(*values)
    else:
        with pytest.raises(Refusal):
            compared(*values)


def test_the_furthest_of_several_tensors_is_told():
    tensors = {"a": (0.0, 1.0, 1.0 + 1e-4), "b": (0.0, 1.0, 1.0 + 5e-4), "c": (0.0, 1.0, 1.0)}
    state = SimpleNamespace(named=tensors)
    start, eager, captured = (
        SimpleNamespace(state=state, copies=[torch.tensor(v[n], dtype=torch.float64) for v in tensors.values()])
        for n in range(3)
    )
    outcomes = [Outcome(copies, [1.0]) for copies in (eager, eager, captured)]
    assert compare(start, *outcomes) == "within 5e-04 of the way"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_integers_must_be_the_same(dtype):
    start, eager, other = (torch.tensor([value], dtype=dtype) for value in (0, 1, 0))
    assert compared(start, eager) == "to the bit"
    with pytest.raises(Refusal, match=r"\(weight\)"):
        compared(start, eager, captured=other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_formats_are_compared_in_long_ones(dtype):
    """Squares of these are beyond fp16."""
    start, eager = torch.zeros(9, dtype=dtype), torch.full((9,), 30000.0, dtype=dtype)
    with pytest.raises(Refusal):
        compared(start, eager, captured=start)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_numbers_that_are_bad_on_both_sides_are_the_same(bad):
    assert compared([0.0, 0.0], [1.0, bad]) == "to the bit"


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_numbers_that_are_bad_on_one_side_are_refused(bad):
    with pytest.raises(Refusal):
        compared([0.0, 0.0], [1.0, 2.0], captured=[1.0, bad])
    with pytest.raises(Refusal):
        compared([0.0, 0.0], [1.0, bad], captured=[1.0, 2.0])


def test_bad_numbers_in_other_places_are_refused():
    with pytest.raises(Refusal):
        compared([0.0, 0.0], [1.0, NAN], captured=[NAN, 1.0])


def test_bad_numbers_in_one_eager_run_allow_nothing():
    with pytest.raises(Refusal):
        compared([0.0], [1.0], again=[NAN], captured=[2.0])


LARGEST = torch.finfo(torch.float32).max


@pytest.mark.parametrize(("one", "other"), [(NAN, 0.0), (0.0, NAN), (INF, LARGEST), (-LARGEST, -INF)])
def test_a_bad_number_is_not_the_number_that_stands_for_it(one, other):
    with pytest.raises(Refusal):
        compared([0.0, 0.0], [1.0, one], captured=[1.0, other])


def losses(eager, again, captured):
    return compared([0.0], [1.0], losses=(eager, again, captured))


def test_losses_may_differ_by_rounding():
    assert losses([2.0], [2.0], [2.0 + 1.9 * LOSS_SHARE]) == "to the bit"
    with pytest.raises(Refusal, match=r"another loss than an eager one \(2\.0003"):
        losses([2.0], [2.0], [2.0 + 3 * LOSS_SHARE])


def test_losses_may_differ_as_eager_ones_do():
    assert losses([2.0], [2.01], [2.0 + 0.9 * SPREAD * 0.01])
    with pytest.raises(Refusal, match="another loss"):
        losses([2.0], [2.01], [2.0 + 1.1 * SPREAD * 0.01])


def test_each_loss_is_compared_with_its_own():
    with pytest.raises(Refusal, match="another loss"):
        losses([1.0, 2.0], [1.0, 2.0], [1.0, 1.0])


def test_losses_that_are_bad_on_both_sides_are_the_same():
    assert losses([NAN, INF], [NAN, INF], [NAN, INF])


@pytest.mark.parametrize(("eager", "captured"), [(1.0, NAN), (NAN, 1.0), (1.0, INF)])
def test_losses_that_are_bad_on_one_side_are_refused(eager, captured):
    with pytest.raises(Refusal, match="another loss"):
        losses([eager], [eager], [captured])


def test_each_step_has_a_loss():
    with pytest.raises(ValueError):
        losses([1.0, 1.0], [1.0, 1.0], [1.0])
