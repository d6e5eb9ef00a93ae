import pytest
import torch
from torch import nn

from brim.memory.forecast import forecast_trace, make_job, make_setting, trace_on
from brim.memory.planning.remedies import remedies

CARD = "NVIDIA A10G"
WIDTH = 256
BATCH = 16384
EVERYTHING = 99
GB = 10**9


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rise, self.fall = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.fall(nn.functional.gelu(self.rise(x)))


class Deep(nn.Module):
    def __init__(self, width=WIDTH, blocks=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def rows(n):
    return (torch.empty(n, WIDTH),), {}


def needed(model=Deep, batch_size=BATCH, **details):
    job, setting = make_job(model, rows, **details), make_setting(CARD, None, None)
    return forecast_trace(trace_on(job, batch_size, setting), job, batch_size, setting)


def found(model=Deep, batch_size=BATCH, limit=GB, card=CARD, most=EVERYTHING, batch=rows, **details):
    job, setting = make_job(model, batch, **details), make_setting(card, None, None)
    return remedies(job, setting, batch_size, limit, most)


def by_name(listed):
    return {remedy.name: remedy for remedy in listed}


@pytest.fixture(scope="module")
def all_of_deep():
    return by_name(found())


def test_checkpointing_helps_a_model_with_a_list_of_blocks(all_of_deep):
    assert all_of_deep["activation checkpointing"].reserved < 0.6 * needed().reserved


@pytest.mark.parametrize(
    "model",
    [lambda: nn.Linear(WIDTH, WIDTH), lambda: Deep(blocks=1)],
    ids=["no list", "one block"],
)
def test_checkpointing_is_left_out_where_it_cannot_be_applied(model):
    assert not [remedy for remedy in found(model) if "checkpointing" in remedy.name]


def test_bf16_halves_the_activations(all_of_deep):
    activations = needed().parts["activations"]
    saved = needed().reserved - all_of_deep["precision='bf16'"].reserved
    assert needed(precision="bf16").parts["activations"] == pytest.approx(activations / 2, rel=0.2)
    assert saved > 0.3 * activations
    assert all_of_deep["precision='bf16'"].reserved == needed(precision="bf16").reserved


class Branches(nn.Module):
    """The gradients of two branches meet, and are added up in place."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, 64 * WIDTH) for _ in range(8))

    def forward(self, x):
        return sum((hidden * 2).sum() + (hidden * 3).sum() for hidden in (layer(x) for layer in self.layers))


def test_sums_of_gradients_are_in_place_with_a_remedy_too():
    sharded = by_name(found(Branches, 1024))["FSDP2 over 8 GPUs"]
    job, setting = make_job(Branches, rows), make_setting(CARD, None, None, gpus=8, strategy="fsdp")
    assert sharded.reserved == forecast_trace(trace_on(job, 1024, setting), job, 1024, setting).reserved


@pytest.mark.parametrize(("card", "low"), [("Tesla T4", "fp16"), ("NVIDIA H100 PCIe", "bf16")])
def test_the_low_precision_is_one_that_the_card_computes_in(card, low):
    assert [remedy.name for remedy in found(card=card, batch_size=65536) if "precision" in remedy.name] == [
        f"precision='{low}'"
    ]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_job_in_low_precision_is_not_told_to_lower_it(precision):
    assert not [remedy for remedy in found(batch_size=64, precision=precision) if "precision" in remedy.name]


def test_a_fused_optimizer_spares_its_temporaries():
    wide = lambda: nn.Linear(4096, 4096)  # noqa: E731
    job, setting = make_job(wide, lambda n: ((torch.empty(n, 4096),), {})), make_setting(CARD, None, None)
    whole = forecast_trace(trace_on(job, 4, setting), job, 4, setting).reserved
    listed = by_name(remedies(job, setting, 4, GB, EVERYTHING))
    assert listed["a fused optimizer (fused=True)"].reserved <= whole - 4096 * 4096 * 4


def test_an_optimizer_without_a_fused_form_is_not_fused():
    listed = found(batch_size=64, optimizer=lambda p: torch.optim.Adadelta(p))
    assert listed
    assert not [remedy for remedy in listed if "fused" in remedy.name]


def test_shards_are_the_smaller_the_more_gpus():
    states = lambda: nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16)))  # noqa: E731
    listed = by_name(found(states, 4, batch=lambda n: ((torch.empty(n, 1024),), {})))
    sizes = [listed[f"FSDP2 over {gpus} GPUs"].reserved for gpus in (2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    job, setting = make_job(states, lambda n: ((torch.empty(n, 1024),), {})), make_setting(CARD, None, None)
    assert sizes[-1] < 0.5 * forecast_trace(trace_on(job, 4, setting), job, 4, setting).reserved


@pytest.mark.slow
def test_those_that_fit_come_first_and_then_the_most_effective():
    limit = int(by_name(found())["precision='bf16'"].reserved * 1.01)
    *ranked, larger = found(limit=limit)
    assert "larger card" in larger.name
    assert {remedy.fits for remedy in ranked} == {True, False}
    assert [(not remedy.fits, remedy.reserved) for remedy in ranked] == sorted(
        (not remedy.fits, remedy.reserved) for remedy in ranked
    )
    assert all(remedy.fits == (remedy.reserved <= limit) for remedy in ranked)


def test_sentences_say_what_it_would_take_and_whether_that_is_enough():
    remedies = found(limit=500 << 20)
    assert {remedy.fits for remedy in remedies} == {True, False}
    for remedy in remedies:
        assert remedy.sentence.startswith(f"{remedy.name}: ")
        assert remedy.sentence.endswith(", still too much") == (not remedy.fits)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("most", [1, 3])
def test_so_many_and_no_more(most):
    assert len(found(batch_size=64, most=most)) == most


def test_a_larger_card_is_the_smallest_on_which_it_fits():
    *_, larger = found(batch_size=BATCH * 32)  # about 20 GB
    assert larger.fits
    assert larger.name.startswith("a larger card, such as ")
    assert "NVIDIA H200" not in larger.name


def test_a_limit_below_what_the_card_has_is_raised_before_a_larger_card_is_bought():
    job, setting = make_job(Deep, rows), make_setting(CARD, None, None)
    *_, last = remedies(job, setting, BATCH, GB // 4, EVERYTHING, more_room="a higher limit")
    assert (last.name, last.reserved, last.fits) == ("a higher limit", needed().reserved, True)
    *_, last = remedies(job, setting, BATCH * 48, GB // 4, EVERYTHING, more_room="a higher limit")
    assert last.name.startswith("a larger card, such as ")


@pytest.mark.slow
def test_on_the_largest_card_no_larger_one_is_named():
    listed = found(card="NVIDIA B200", batch_size=64, most=3)
    assert len(listed) == 3
    assert not [remedy for remedy in listed if "larger card" in remedy.name]


@pytest.mark.parametrize("batch_size", [64, BATCH])
def test_a_change_that_does_not_help_is_no_remedy(batch_size):
    model = lambda: nn.Linear(WIDTH, WIDTH)  # noqa: E731
    whole = needed(model, batch_size).reserved
    assert not [r for r in found(model, batch_size) if r.reserved >= whole and "larger card" not in r.name]
