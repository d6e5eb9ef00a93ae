"""One job on many cards."""

import pytest
import torch
from torch import nn

import brim
from brim.errors import ConfigError
from brim.hardware.cards import find_card
from brim.memory.forecast import make_job, precision_on
from brim.memory.planning import every_card, window
from brim.memory.planning.every_card import EveryCard
from brim.memory.planning.window import StepBatches

GIB = 1 << 30
CARDS = ["Tesla P100-PCIE-16GB", "NVIDIA A10G", "NVIDIA A40", "NVIDIA H200"]


def mlp():
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))


def rows(n):
    return (torch.empty(n, 1024),), {}


def cards_for(batch_size, limit=None, **batches):
    return EveryCard(lambda card: make_job(mlp, rows), batch_size, limit, StepBatches(**batches))


@pytest.fixture
def traced(monkeypatch):
    """The (batch size, card) of every trace that was made."""
    made, trace_on = [], window.trace_on

    def remember(job, batch_size, setting):
        made.append((batch_size, setting.card.name))
        return trace_on(job, batch_size, setting)

    monkeypatch.setattr(window, "trace_on", remember)
    return made


@pytest.mark.matrix(2)
@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("how", [{}, {"accumulation": 3}, {"micro_batch": 500}], ids=str)
def test_a_card_alone_is_planned_as_by_a_plan(name, how):
    found = cards_for(20_000, GIB, **how).outcome(find_card(name))
    made = brim.plan(mlp, rows, batch_size=20_000, card=name, memory=GIB, **how)
    assert found.fits
    assert found.limit == made.limit == GIB
    assert (found.micro_batch, found.slices, found.reserved, found.largest_micro_batch) == (
        made.micro_batch, made.slices, made.forecast.reserved, made.largest,
    )  # fmt: skip


def test_under_one_limit_a_card_like_one_before_costs_nothing(traced):
    cards = cards_for(20_000, GIB)
    first = cards.outcome(find_card("NVIDIA A10G"))
    before = len(traced)
    assert cards.outcome(find_card("NVIDIA A40")) is first
    assert len(traced) == before


def test_an_architecture_that_does_the_same_is_traced_once_to_see_that(traced):
    cards = cards_for(20_000, GIB)
    cards.outcome(find_card("NVIDIA RTX A4000"))
    before = len(traced)
    cards.outcome(find_card("NVIDIA RTX 4000 Ada Generation"))
    assert traced[before:] == [(20_000, "NVIDIA RTX 4000 Ada Generation")]


def test_an_architecture_that_does_something_else_has_its_own_traces():
    cards = cards_for(2_000)
    found = {name: cards.outcome(find_card(name)).reserved for name in ("NVIDIA A10G", "NVIDIA H200")}
    assert found["NVIDIA A10G"] < found["NVIDIA H200"]  # whose cuBLAS takes more for itself


def test_what_does_not_fit_is_told_with_the_limit_and_what_it_needs():
    found = cards_for(20_000, 50 << 20).outcome(find_card("NVIDIA A10G"))
    assert (found.fits, found.micro_batch, found.slices, found.limit) == (False, 0, 0, 50 << 20)
    assert found.reserved > 50 << 20


def test_without_a_limit_it_is_that_of_each_card():
    cards = cards_for(64)
    small, large = (cards.outcome(find_card(name)) for name in ("NVIDIA A10G", "NVIDIA A40"))
    assert small.limit == brim.plan(mlp, rows, batch_size=64, card="NVIDIA A10G").limit < large.limit
    assert small.reserved == large.reserved


def test_the_precision_may_be_that_of_each_card():
    asked = []

    def job_on(card):
        asked.append(precision_on(card, "auto"))
        return make_job(mlp, rows, precision=asked[-1])

    cards = EveryCard(job_on, 64)
    assert all(cards.outcome(find_card(name)).fits for name in ("Tesla T4", "NVIDIA A10G"))
    assert asked == ["fp16", "bf16"]


def test_a_batch_without_samples_is_refused():
    with pytest.raises(ConfigError, match="must be a whole number of at least 1"):
        cards_for(0)


def test_workspaces_do_not_decide_whether_two_traces_do_the_same():
    trace = every_card.family_of(make_job(mlp, rows), every_card.make_setting("H200", None, None)).trace(64)
    assert every_card.workspaces_of(trace) > 0
    assert len(every_card.storages_of(trace)) < len(trace.events)
