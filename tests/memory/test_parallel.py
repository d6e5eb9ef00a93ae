"""One rank of several: copies under DDP, shards under FSDP."""

import hypothesis.strategies as st
import pytest
import torch
from helpers.examples import examples
from hypothesis import given
from torch import nn

from brim.errors import ConfigError
from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.allocator.peak import find_peak
from brim.memory.forecast import make_job
from brim.memory.parallel import GATHERED_AT_ONCE, SHARDED, trace_of_rank
from brim.memory.trace.steps import trace_steps
from brim.memory.trace.trace import Trace

WIDTH = 512
LAYERS = 4


def build() -> nn.Module:
    return nn.ModuleDict({"blocks": nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))})["blocks"]


def batch(n: int):
    return (torch.randn(n, WIDTH),), {}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return trace_steps(make_job(build, batch), 8, H200, (2, 11))


def bytes_of(trace: Trace, *kinds: str) -> int:
    return sum(storage.size for storage in trace.storages if storage.kind in kinds)


def predict(**where):
    return forecast(build, batch, batch_size=8, card=H200, runtime="2.11", **where)


@pytest.mark.parametrize(("strategy", "gpus"), [("single", 1), ("single", 8), ("ddp", 1)])
def test_one_gpu_is_left_as_it_is(trace: Trace, strategy: str, gpus: int) -> None:
    assert trace_of_rank(trace, strategy, gpus) is trace


def test_ddp_keeps_one_more_copy_of_the_gradients(trace: Trace) -> None:
    more = find_peak(trace_of_rank(trace, "ddp", 4)).allocated - find_peak(trace).allocated
    assert more == 4 * LAYERS * (WIDTH * WIDTH + WIDTH)


def test_ddp_keeps_one_more_copy_of_the_gradients_with_plain_sgd() -> None:
    job = make_job(build, batch, None, lambda p: torch.optim.SGD(p, lr=0.1))
    trace = trace_steps(job, 8, H200, (2, 11))
    more = find_peak(trace_of_rank(trace, "ddp", 4)).allocated - find_peak(trace).allocated
    assert more == 4 * LAYERS * (WIDTH * WIDTH + WIDTH)


def test_ranks_send_gradients_of_16_bits_in_32() -> None:
    trace = trace_steps(make_job(build, batch, precision="bf16-true", accumulation=3), 8, H200, (2, 11))
    more = find_peak(trace_of_rank(trace, "ddp", 4, has_short_gradients=True)).allocated - find_peak(trace).allocated
    assert more == 4 * LAYERS * (WIDTH * WIDTH + WIDTH)


def test_gradients_that_are_views_of_buckets_are_there_once(trace: Trace) -> None:
    """They stand in the forward pass too, and what autograd made of each is gone when the next one comes."""
    views, size = trace_of_rank(trace, "ddp", 4, bucket_views=True), 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
    assert [storage.size for storage in views.storages[-1:]] == [size]
    born = [place for place, (n, s) in enumerate(views.events) if views.storages[n].kind == "gradients" and s >= 0]
    assert all(views.events[place + 1] == (views.events[place][0], -1) for place in born)
    deaths = [n for n, s in views.events if s == -1 and views.storages[n].kind == "gradients"]
    assert len(deaths) == len(born)
    copies = find_peak(trace_of_rank(trace, "ddp", 4)).allocated
    assert find_peak(trace).allocated <= find_peak(views).allocated < copies


def test_views_of_buckets_are_for_ddp_and_steps_of_one_batch() -> None:
    with pytest.raises(ConfigError, match=r"^gradient_as_bucket_view=True is one of DDP, and strategy='fsdp' has no"):
        predict(strategy="fsdp", gpus=4, gradient_as_bucket_view=True)
    with pytest.raises(
        ConfigError, match=r"^gradient_as_bucket_view=True with accumulation=2 is not forecast: .*no_sync"
    ):
        predict(strategy="ddp", gpus=4, gradient_as_bucket_view=True, accumulation=2)
    less = predict(strategy="ddp", gpus=4, gradient_as_bucket_view=True)
    assert less.allocated < predict(strategy="ddp", gpus=4).allocated


@pytest.mark.parametrize("accumulation", [1, 2])
def test_data_parallel_adds_up_beside_the_gradients_of_its_first_gpu(accumulation: int) -> None:
    trace = trace_steps(make_job(build, batch, accumulation=accumulation), 8, H200, (2, 11))
    gradients = 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
    shared = trace_of_rank(trace, "dp", 3)
    sums = [storage.size for storage in shared.storages if storage.operator == "sums of DataParallel"]
    assert [size // gradients for size in sums] == [2, 3][:accumulation] * 3  # all of them fit into one sum: once more
    assert [s.size for s in shared.storages if s.operator == "shares of other GPUs"] == [2 * 4 * 8 * WIDTH]
    assert [phase for _, phase in shared.marks] == [phase for _, phase in trace.marks]


def test_data_parallel_says_what_torchs_own_gathers_besides() -> None:
    assert any("nn.DataParallel gathers the outputs" in note for note in predict(strategy="dp", gpus=2).notes)
    assert predict(strategy="dp", gpus=1).allocated == predict().allocated


def test_ddp_does_not_ask_how_many(trace: Trace) -> None:
    assert trace_of_rank(trace, "ddp", 2).events == trace_of_rank(trace, "ddp", 64).events


def test_ddp_leaves_frozen_parameters_out() -> None:
    def half_frozen() -> nn.Module:
        model = build()
        model[:2].requires_grad_(False)
        return model

    trace = trace_steps(make_job(half_frozen, batch), 8, H200, (2, 11))
    more = find_peak(trace_of_rank(trace, "ddp", 4)).allocated - find_peak(trace).allocated
    assert more == 4 * 2 * (WIDTH * WIDTH + WIDTH)


@examples(15)
@given(st.integers(1, 64))
def test_fsdp_keeps_a_shard_of_every_state(trace: Trace, gpus: int) -> None:
    sharded = trace_of_rank(trace, "fsdp", gpus)
    for kind in SHARDED:
        whole, part = bytes_of(trace, kind), bytes_of(sharded, kind)
        assert whole <= part * gpus <= whole + gpus * len(trace.storages)
    assert len(sharded.events) == len(trace.events) + 2


def test_fsdp_gathers_two_blocks_and_holds_the_gradient_of_one(trace: Trace) -> None:
    sharded = trace_of_rank(trace, "fsdp", 8)
    block = 4 * (WIDTH * WIDTH + WIDTH)
    assert [storage.size for storage in sharded.storages[-2:]] == [GATHERED_AT_ONCE * block, block]


def test_the_trace_that_was_given_stays_as_it_was(trace: Trace) -> None:
    before = (list(trace.events), list(trace.marks), bytes_of(trace, *SHARDED))
    trace_of_rank(trace, "fsdp", 8)
    trace_of_rank(trace, "ddp", 8)
    assert (trace.events, trace.marks, bytes_of(trace, *SHARDED)) == before


@pytest.mark.parametrize(("strategy", "gpus"), [("ddp", 4), ("fsdp", 4)])
def test_marks_still_point_at_the_same_events(trace: Trace, strategy: str, gpus: int) -> None:
    shared = trace_of_rank(trace, strategy, gpus)
    assert [phase for _, phase in shared.marks] == [phase for _, phase in trace.marks]
    for (index, phase), (shifted, _) in zip(trace.marks, shared.marks, strict=True):
        if phase in ("forward", "backward", "optimizer") and index < len(trace.events):
            assert shared.events[shifted][0] == trace.events[index][0]


def test_parts_add_up_whatever_the_strategy() -> None:
    single, ddp, fsdp = predict(), predict(strategy="ddp", gpus=4), predict(strategy="fsdp", gpus=4)
    for one in (single, ddp, fsdp):
        assert sum(one.parts.values()) == one.device
    assert ddp.parts["workspace"] > single.parts["workspace"]
    assert fsdp.parts["optimizer"] < single.parts["optimizer"] / 3
    assert (ddp.gpus, ddp.strategy) == (4, "ddp")


@pytest.mark.parametrize("wrong", [{"strategy": "zero"}, {"gpus": 0}, {"gpus": True}, {"gpus": 2.0}])
def test_unknown_strategies_and_numbers_of_gpus_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=rf"^{next(iter(wrong))}="):
        predict(**wrong)
