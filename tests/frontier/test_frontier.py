"""The fastest way to train something that fits: beside a search through all of them."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from brim.frontier import Frontier
from brim.frontier import frontier as frontier_room
from brim.frontier.frontier import TRIES, sizes_of
from brim.logits.chunked_head import CHUNKED, WHOLE
from brim.memory.forecast import forecast_trace, make_job, make_setting, trace_on
from brim.memory.planning.window import StepBatches

WORDS, TOKENS, LAYERS, BATCH = 4000, 64, 3, 32


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=TOKENS, n_embd=128, n_layer=LAYERS, n_head=4))


def sentences(n):
    words = torch.ones(n, TOKENS, dtype=torch.long)
    return (), {"input_ids": words, "labels": words}


def frontier(logits=(WHOLE, CHUNKED), **batches):
    setting = make_setting("NVIDIA A10G", None, None)
    return Frontier(make_job(gpt2, sentences, precision="bf16"), setting, BATCH, StepBatches(**batches), logits)


@pytest.fixture(scope="module")
def of_gpt2():
    return frontier()


@pytest.fixture(scope="module")
def needed(of_gpt2):
    """What the whole batch reserves."""
    return of_gpt2.rows(1 << 40)[0].reserved


def test_a_batch_that_fits_goes_through_whole_and_nothing_is_computed_again(of_gpt2):
    chosen = of_gpt2.fastest(1 << 40)
    assert (chosen.rung.micro_batch, chosen.rung.slices, chosen.rung.recomputed) == (BATCH, 1, ())


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.35])
def test_what_is_chosen_fits_and_nothing_else_that_fits_is_faster(of_gpt2, needed, share):
    limit = int(share * needed)
    chosen = of_gpt2.fastest(limit)
    assert chosen.fits
    assert chosen.reserved <= limit
    rows = [row for row in of_gpt2.rows(limit) if row.fits and not row.rung.expandable]
    assert chosen.seconds == min(row.seconds for row in rows)
    for logits, way in of_gpt2._ways.items():
        for size in (BATCH, 16, 8, 4, 2):
            step = way.step(BATCH // size)
            for count in range(LAYERS + 1):
                if step.fits(range(count), of_gpt2._usable(limit), False):
                    assert chosen.seconds <= step.seconds(range(count), 1) + 1e-12, (logits, size, count)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.35])
def test_a_trace_of_what_was_chosen_says_that_it_fits(of_gpt2, needed, share):
    limit = int(share * needed)
    chosen, made = of_gpt2.verified(limit)
    assert made.reserved <= limit
    assert made.batch_size == chosen.rung.micro_batch
    assert chosen.reserved == made.reserved


def test_what_its_trace_says_does_not_fit_is_not_traced_again(of_gpt2, needed, monkeypatch):
    looked, trace = [], of_gpt2._trace
    monkeypatch.setattr(of_gpt2, "_trace", lambda rung: (looked.append(rung), trace(rung))[1])
    monkeypatch.setattr(frontier_room, "fits", lambda *_: len(looked) == TRIES)
    chosen, _ = of_gpt2.verified(int(0.5 * needed))
    assert len(set(looked)) == len(looked) == TRIES and chosen.rung == looked[-1]


def test_where_nothing_fits_there_is_nothing_to_choose(of_gpt2):
    assert of_gpt2.fastest(1 << 20) is None
    assert of_gpt2.verified(1 << 20) is None
    assert not any(row.fits for row in of_gpt2.rows(1 << 20))


def test_what_fits_is_shown_once_and_with_no_more_than_the_limit():
    """The allocator gives back what is free before it gives up: a batch fits below what it would reserve."""
    job = make_job(
        lambda: nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 2)),
        lambda n: ((torch.empty(n, 50, 256),), {}),
    )
    made = Frontier(job, make_setting("NVIDIA A10G", None, None), 300)
    limit = int(0.95 * made.plain.reserved)
    rows = [row for row in made.rows(limit) if row.fits]
    assert rows[0].rung.micro_batch == 300
    assert all(row.reserved <= limit for row in rows)
    assert len({row.rung for row in rows}) == len(rows)


def test_rows_have_each_rung_alone_and_pairs(of_gpt2, needed):
    rows = of_gpt2.rows(int(0.5 * needed))
    kinds = {(bool(row.rung.recomputed), row.rung.logits) for row in rows}
    assert kinds >= {(False, "whole"), (True, "whole"), (False, "chunked"), (True, "chunked")}
    assert [row.seconds for row in rows] == sorted(row.seconds for row in rows)


@pytest.mark.slow
def test_a_micro_batch_that_is_decided_stays():
    fixed = frontier(micro_batch=8, logits=("whole",))
    chosen = fixed.fastest(1 << 40)
    assert (chosen.rung.micro_batch, chosen.rung.slices) == (8, 4)


def test_what_must_not_be_split_is_not():
    whole = frontier(sliceable=False, logits=("whole",))
    limit = int(0.75 * whole.rows(1 << 40)[0].reserved)
    chosen = whole.fastest(limit)
    assert chosen.rung.slices == 1
    assert chosen.rung.recomputed


def test_models_without_blocks_and_without_words_are_only_split():
    job = make_job(
        lambda: nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 1)), lambda n: ((torch.empty(n, 64),), {})
    )
    made = Frontier(job, make_setting("NVIDIA A10G", None, None), 65536)
    limit = int(0.5 * made.rows(1 << 40)[0].reserved)
    assert {(row.rung.recomputed, row.rung.logits) for row in made.rows(limit)} == {((), "whole")}
    assert made.fastest(limit).rung.slices > 1


def test_batch_norm_is_not_split_unless_somebody_says_so():
    def model():
        return nn.Sequential(nn.Linear(64, 4096), nn.BatchNorm1d(4096), nn.ReLU(), nn.Linear(4096, 1))

    job, setting = make_job(model, lambda n: ((torch.empty(n, 64),), {})), make_setting("NVIDIA A10G", None, None)
    half = forecast_trace(trace_on(job, 65536, setting), job, 65536, setting).reserved // 2
    assert Frontier(job, setting, 65536).fastest(half) is None
    assert Frontier(job, setting, 65536, StepBatches(sliceable=True)).fastest(half).rung.slices > 1


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 64, 1000])
def test_sizes_go_from_the_whole_batch_to_one_sample(batch_size):
    sizes = sizes_of(batch_size)
    assert (sizes[0], sizes[-1]) == (batch_size, 1)
    assert sizes == sorted(set(sizes), reverse=True)
