"""The watch on a card that says what it is told to."""

import pytest
import torch

from brim.engine.oom import memory_watch as room
from brim.engine.oom.memory_watch import MemoryWatch, usable_memory

CUDA = torch.device("cuda", 0)
GIB = 1 << 30


class Card:
    free, total, reserved, share, retries, emptied = 10 * GIB, 80 * GIB, 2 * GIB, 1.0, 0, 0
    allocated, peak = GIB, 2 * GIB


@pytest.fixture
def card(monkeypatch):
    card = Card()
    answers = {
        "mem_get_info": lambda device: (card.free, card.total),
        "get_per_process_memory_fraction": lambda device: card.share,
        "memory_reserved": lambda device: card.reserved,
        "memory_allocated": lambda device: card.allocated,
        "max_memory_allocated": lambda device: card.peak,
        "max_memory_reserved": lambda device: card.reserved,
        "reset_peak_memory_stats": lambda device: None,
        "memory_stats": lambda device: {"num_alloc_retries": card.retries},
        "empty_cache": lambda: setattr(card, "emptied", card.emptied + 1),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return card


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(room.time, "perf_counter", lambda: now[0])
    return now


def test_what_is_free_or_ones_own_can_be_used_within_the_share(card):
    assert usable_memory(CUDA) == 12 * GIB
    card.share = 0.1
    assert usable_memory(CUDA) == 8 * GIB


def test_it_looks_once_a_second(card, clock):
    watch = MemoryWatch(CUDA)
    assert watch.is_due()
    watch.note_check()
    clock[0] += 0.9
    assert not watch.is_due()
    clock[0] += 0.2
    assert watch.is_due() and watch.is_due()
    watch.note_check()
    assert not watch.is_due()


def test_on_the_cpu_it_has_nothing_to_say(clock):
    watch = MemoryWatch(torch.device("cpu"))
    watch.note_oom()
    watch.note_usable_memory()
    assert not watch.is_due()
    assert not watch.has_more_memory()


def test_more_room_is_clearly_more_than_when_memory_ran_out(card):
    watch = MemoryWatch(CUDA)
    assert not watch.has_more_memory()  # it never ran out
    watch.note_oom()
    card.free = int(10.5 * GIB)
    assert not watch.has_more_memory()  # four in a hundred more
    card.free = 11 * GIB
    assert watch.has_more_memory() and watch.has_more_memory()
    watch.note_usable_memory()
    assert not watch.has_more_memory()
    card.free = 20 * GIB
    assert watch.has_more_memory()


def test_ones_own_cached_memory_is_not_more_room(card):
    watch = MemoryWatch(CUDA)
    watch.note_oom()
    card.free, card.reserved = 1 * GIB, 11 * GIB
    assert not watch.has_more_memory()


def test_one_retry_empties_the_cache_and_two_in_a_row_are_too_many(card):
    watch = MemoryWatch(CUDA)
    assert not watch.empty_cache_after_retries()
    card.retries = 1
    assert not watch.empty_cache_after_retries()
    assert card.emptied == 1
    card.retries = 2
    assert watch.empty_cache_after_retries()


def test_retries_with_a_rest_between_them_are_nothing(card):
    watch = MemoryWatch(CUDA)
    for retries in (0, 1, 1, 2, 2, 5, 5):
        card.retries = retries
        assert not watch.empty_cache_after_retries()


def test_running_out_starts_the_count_of_retries_anew(card):
    watch = MemoryWatch(CUDA)
    watch.empty_cache_after_retries()
    card.retries = 1
    watch.empty_cache_after_retries()
    watch.note_oom()
    card.retries = 2
    assert not watch.empty_cache_after_retries()


def test_retries_since_the_step_began_are_seen(card):
    watch = MemoryWatch(CUDA)
    card.retries = 3
    watch.begin()
    assert not watch.had_alloc_retries()
    card.retries = 4
    assert watch.had_alloc_retries()


def test_the_largest_size_is_what_the_room_holds_by_the_last_peak(card):
    watch = MemoryWatch(CUDA)
    watch.begin()
    size = watch.largest_fitting(4)  # 1 GiB stands, and 4 samples took 1 GiB more: a quarter of one each
    assert size == int((room.FILLED * 12 - 1) * 4)
    assert MemoryWatch(torch.device("cpu")).largest_fitting(4) is None


def test_the_highest_peak_is_kept_when_a_step_is_measured(card):
    watch = MemoryWatch(CUDA)
    card.peak = 7 * GIB
    watch.begin()
    card.peak = 3 * GIB
    watch.begin()
    assert watch.most_allocated == 7 * GIB


def test_what_an_evaluation_reserves_beyond_the_steps_is_its_part(card):
    watch = MemoryWatch(CUDA)
    card.reserved = 2 * GIB
    with watch.of_part("evaluation"):
        card.reserved = 5 * GIB
    card.reserved = 6 * GIB
    watch.note_peak()
    assert watch.parts.sizes == {"steps": 3 * GIB, "evaluation": 3 * GIB}
    assert watch.most_reserved == 6 * GIB


def test_an_evaluation_that_fails_has_its_part_too(card):
    watch = MemoryWatch(CUDA)
    with pytest.raises(ValueError, match="bad"), watch.of_part("evaluation"):
        card.reserved = 5 * GIB
        raise ValueError("bad")
    card.reserved = 7 * GIB
    watch.note_peak()
    assert watch.parts.sizes == {"steps": 4 * GIB, "evaluation": 3 * GIB}


def test_a_captured_step_is_a_part_and_one_that_was_given_up_is_none(card):
    watch = MemoryWatch(CUDA)
    watch.before_attempt()
    card.reserved = 9 * GIB
    watch.attempt_kept()
    assert watch.parts.sizes == {"steps": 2 * GIB, "captured steps": 7 * GIB}
    other = MemoryWatch(CUDA)
    card.reserved = 2 * GIB
    other.before_attempt()
    card.reserved = 9 * GIB
    other.attempt_failed()
    card.reserved = 3 * GIB
    other.note_peak()
    assert other.parts.sizes == {"steps": 3 * GIB}


def test_on_the_cpu_there_are_no_parts():
    watch = MemoryWatch(torch.device("cpu"))
    with watch.of_part("evaluation"):
        pass
    watch.before_attempt()
    watch.attempt_kept()
    assert watch.parts.sizes == {}
