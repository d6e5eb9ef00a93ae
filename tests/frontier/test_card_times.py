"""Steps on cards that are not here, from work that is counted once."""

import pytest
import torch
from torch import nn

from brim.frontier import card_times
from brim.frontier.card_times import CardTimes
from brim.hardware.cards import Card, find_card
from brim.memory.forecast import make_job


def job_on(card):
    return make_job(lambda: nn.Linear(4096, 4096), lambda n: ((torch.empty(n, 4096),), {}))


def test_a_faster_card_takes_less_time_and_two_passes_twice_as_long():
    times = CardTimes(job_on, 65536)
    slow, fast = (times.seconds(find_card(name), 65536, 1) for name in ("NVIDIA L4", "NVIDIA H200"))
    assert slow > fast > 0
    half = times.seconds(find_card("NVIDIA L4"), 32768, 2)
    assert half == pytest.approx(slow, rel=0.1)
    assert CardTimes(job_on, 65536, accumulation=3).seconds(find_card("NVIDIA L4"), 65536, 1) > 2.5 * slow


def test_work_is_counted_once_for_cards_that_compute_alike(monkeypatch):
    counted, count = [], card_times.count_work

    def counting(*args):
        counted.append(args)
        return count(*args)

    monkeypatch.setattr(card_times, "count_work", counting)
    times = CardTimes(job_on, 64)
    for name in ("NVIDIA L4", "NVIDIA H200", "NVIDIA A10G", "Tesla T4", "Tesla V100-SXM2-16GB"):
        assert times.seconds(find_card(name), 64, 1) > 0
    assert len(counted) == 4  # two sizes, with bfloat16 and without


def test_of_a_card_without_a_data_sheet_nothing_is_said():
    assert CardTimes(job_on, 64).seconds(Card("an odd one", 1 << 34, (8, 6), 80), 64, 1) is None
