"""The largest batch against brute force."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from brim.errors import CannotFit, ConfigError, ModelError
from brim.hardware.cards import H200, Card, find_card
from brim.memory import forecast, largest_batch
from brim.memory.forecast import forecast_trace, make_job, make_setting
from brim.memory.planning.family import TraceFamily
from brim.memory.planning.largest import CLOSE_ENOUGH, LARGEST, MARGIN, Search
from brim.memory.trace.trace import DEATH, Storage, Trace
from brim.sizes import parse_bytes

MIB = 1 << 20
JOB = make_job(nn.Identity(), lambda n: ((), {}))
SETTING = make_setting(H200, "2.11", False)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 256))


def rows(n: int):
    return (torch.randn(n, 256),), {}


def wide_rows(n: int):
    return (torch.randn(n, 4000, 256),), {}


def search_for(sizes, limit: int) -> Search:
    """The search over a job whose step holds storages of these sizes (MiB) at a batch size."""

    def make(n: int) -> Trace:
        storages = [Storage(int(size * MIB), "operator", "forward") for size in sizes(n)]
        return Trace(storages, [(i, storage.size) for i, storage in enumerate(storages)], [(0, "forward")])

    return Search(JOB, SETTING, limit * MIB, TraceFamily(make))


def brute_force(search: Search, at_most: int) -> int:
    return max((n for n in range(1, at_most + 1) if search.fits(n)), default=0)


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("memory", "precision"),
    [
        ("300MiB", "32"),
        ("700MiB", "32"),
        ("1.5GiB", "32"),
        ("700MiB", "bf16"),
        ("1.5GiB", "bf16"),
        ("300MiB", "bf16"),
    ],
)
def test_it_equals_brute_force_on_a_small_perceptron(memory: str, precision: str) -> None:
    found = largest_batch(perceptron, wide_rows, precision=precision, card=H200, memory=memory)
    job = make_job(perceptron, wide_rows, precision=precision)
    limit = int(float(memory[:-3]) * {"MiB": MIB, "GiB": 1024 * MIB}[memory[-3:]])
    assert found == brute_force(Search(job, make_setting(H200, None, None), limit), found + 3)


@pytest.mark.parametrize("memory", ["1GiB", "5GiB"])
def test_it_fits_and_a_tenth_more_does_not(memory: str) -> None:
    found = largest_batch(perceptron, rows, card=H200, memory=memory)
    search = Search(make_job(perceptron, rows), make_setting(H200, None, None), int(memory[0]) << 30)
    assert search.fits(found)
    assert not search.fits(found + -(-found // 10))


def test_the_forecast_at_the_largest_batch_is_under_the_limit() -> None:
    found = largest_batch(perceptron, rows, card=H200, memory="2GiB", expandable_segments=True)
    assert forecast(perceptron, rows, batch_size=found, card=H200, expandable_segments=True).reserved <= 2 << 30


@given(st.integers(1, 60), st.integers(0, 300), st.integers(60, 3000))
def test_straight_lines_are_searched_to_the_last_sample(growth: int, base: int, limit: int) -> None:
    search = search_for(lambda n: [base, growth * n], limit)
    truth = brute_force(search, 3000 // growth + 1)
    if truth:
        assert truth - truth // CLOSE_ENOUGH <= search.largest() <= truth
    else:
        with pytest.raises(CannotFit):
            search.largest()


def test_small_sizes_that_fail_do_not_hide_larger_ones_that_fit() -> None:
    search = search_for(lambda n: [39, n], 60)  # 2 to 9 MiB take a segment of 20 MiB, 10 and more one of their own
    assert [n for n in range(1, 30) if search.fits(n)] == [1, *range(10, 19)]
    assert search.largest() == 18


def test_a_curve_is_searched_too() -> None:
    search = search_for(lambda n: [n * n / 10], 4000)
    assert search.largest() == brute_force(search, 300)


def test_a_job_that_does_other_things_at_other_sizes_is_searched_too() -> None:
    search = search_for(lambda n: [10 * n] * (1 + n % 2), 1000)
    found = search.largest()
    assert search.fits(found)
    assert found >= 48


def test_a_jump_above_the_first_two_sizes_does_not_hide_the_sizes_below() -> None:
    search = search_for(lambda n: [20 * n if n < 7 else 2000 * n], 200)
    assert search.largest() == brute_force(search, 20) == 6


def test_a_batch_of_one_is_tried_before_it_is_refused() -> None:
    def make(n: int) -> Trace:
        """A kernel takes a large workspace at 2 alone."""
        sizes = [10 * MIB * n, (200 if n == 2 else 10 * n) * MIB]
        storages = [Storage(sizes[0], "a", "forward"), Storage(sizes[1], "b", "forward", kind="workspace")]
        return Trace(storages, [(0, sizes[0]), (1, sizes[1]), (1, DEATH)], [(0, "forward")])

    assert Search(JOB, SETTING, 50 * MIB, TraceFamily(make)).largest() >= 1


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 2048), nn.BatchNorm1d(2048), nn.Linear(2048, 256))


@pytest.mark.matrix(1)
@pytest.mark.parametrize("memory", ["130MiB", "200MiB", "1GiB"])
def test_a_model_that_needs_two_samples_is_searched_from_two_on(memory: str) -> None:
    found = largest_batch(normalised, rows, card=H200, memory=memory)
    search = Search(make_job(normalised, rows), make_setting(H200, None, None), parse_bytes(memory))
    assert search.smallest == 2
    assert search.fits(found)


def test_a_model_that_needs_two_samples_is_refused_where_two_do_not_fit() -> None:
    with pytest.raises(CannotFit, match=r"^not even two samples fit: they need "):
        largest_batch(normalised, rows, card=H200, memory="50MiB")


def test_a_model_that_runs_at_no_size_is_told_why() -> None:
    with pytest.raises(ModelError, match="must have same reduction dim"):
        largest_batch(lambda: nn.Linear(8, 8), rows, card=H200, memory="50MiB")


@pytest.mark.parametrize("at_most", [1, 2, 7, 40])
def test_no_more_than_asked_for(at_most: int) -> None:
    assert search_for(lambda n: [10 * n], 10_000).largest(at_most) == at_most


def test_a_batch_that_does_not_decide_the_memory_ends_the_search() -> None:
    assert search_for(lambda n: [50], 1000).largest() == LARGEST


def test_it_says_what_is_missing_when_not_even_one_fits() -> None:
    sentence = r"^not even one sample fits: it needs .*, 99\.0 MiB can be used on NVIDIA H200, .* are missing$"
    with pytest.raises(CannotFit, match=sentence) as caught:
        largest_batch(perceptron, wide_rows, card=H200, memory="100MiB")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("memory", ["lots", "0", -1])
def test_a_limit_that_is_none_is_refused(memory) -> None:
    with pytest.raises(ConfigError, match=r"^memory="):
        largest_batch(perceptron, rows, card=H200, memory=memory)


def test_ways_to_write_a_limit_agree() -> None:
    found = {
        largest_batch(perceptron, rows, card=H200, memory=memory) for memory in ("1GiB", "1024 MiB", "1G", 1 << 30)
    }
    assert len(found) == 1


def test_without_a_limit_the_card_less_its_context_is_filled() -> None:
    card = Card("small", 2 << 30, (9, 0), 132, measured=True)
    found = largest_batch(perceptron, rows, card=card)
    search = Search(make_job(perceptron, rows), make_setting(card, None, None), None)
    assert search.limit == (2 << 30) - 742 * MIB
    assert search.usable == int(search.limit * (1 - MARGIN))
    at_best = forecast_trace(search.family.trace(found), search.job, found, search.setting, search.usable)
    assert at_best.device <= at_best.card.memory
    assert not search.fits(found + -(-found // 10))


def test_on_a_card_that_was_not_measured_the_most_that_the_context_may_be_is_left_free() -> None:
    search = Search(make_job(perceptron, rows), make_setting(find_card("RTX 4090"), None, None), None)
    context = search.setting.calibration.context_of(search.setting.card, True, False)
    assert search.limit == search.setting.card.memory - context.high


def test_more_memory_never_means_a_smaller_batch() -> None:
    found = [largest_batch(perceptron, rows, card=H200, memory=f"{gib}GiB") for gib in (1, 2, 3, 4)]
    assert found == sorted(found)
