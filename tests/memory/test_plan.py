import json

import pytest
import torch
from torch import nn

import brim
from brim.errors import BrimError, CannotFit, ConfigError, ModelError
from brim.memory.allocator import OutOfMemory
from brim.memory.forecast import make_job, make_setting
from brim.memory.largest import Search
from brim.memory.plan import NothingFits, plan

CARD = "NVIDIA H200"
GIB = 1 << 30


def mlp():
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))


def normalised():
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3))


def rows(width):
    return lambda n: ((torch.empty(n, width),), {})


def images(n):
    return (torch.empty(n, 3, 32, 32),), {}


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def search(model, batch, memory, accumulation=1, optimizer=None):
    """What fits, asked of the search itself."""
    job = make_job(model, batch, None, optimizer, accumulation=accumulation)
    return Search(job, make_setting(CARD, None, None), memory)


def test_a_batch_that_fits_is_one_slice():
    made = plan(mlp, rows(1024), batch_size=64, card=CARD)
    assert (made.batch_size, made.micro_batch, made.slices) == (64, 64, 1)
    assert made.largest >= 64 * 64  # it looks no further
    assert made.forecast.batch_size == 64
    assert made.forecast.fits
    assert "the whole batch fits at once" in made.reasons[0]
    assert any("a larger batch would fit" in advice for advice in made.advice)


@pytest.mark.parametrize("batch_size", [14_300, 20_000, 65_536, 65_537])
def test_a_batch_that_does_not_fit_is_cut_into_equal_slices_that_do(batch_size):
    made = plan(mlp, rows(1024), batch_size=batch_size, card=CARD, memory="1GiB")
    assert made.slices > 1
    assert made.slices * made.micro_batch >= batch_size
    assert made.micro_batch == -(-batch_size // made.slices)  # equal: no slice is more than one part smaller
    assert made.micro_batch <= made.largest < batch_size
    assert made.limit == GIB
    assert made.forecast.reserved <= GIB
    found = search(mlp, rows(1024), GIB)
    assert found.fits(made.micro_batch)
    assert found.fits(made.largest)
    assert not found.fits(int(made.largest * 1.1))
    assert f"in {made.slices} slices" in made.reasons[0]


def test_as_many_as_fit_exactly_are_one_slice():
    largest = brim.largest_batch(mlp, rows(1024), card=CARD, memory="1GiB")
    assert plan(mlp, rows(1024), batch_size=largest, card=CARD, memory="1GiB").slices == 1


def test_the_forecast_of_a_plan_is_that_of_the_micro_batch():
    made = plan(mlp, rows(1024), batch_size=64, card=CARD)
    alone = brim.forecast(mlp, rows(1024), batch_size=64, card=CARD)
    assert (made.forecast.parts, made.forecast.reserved) == (alone.parts, alone.reserved)


@pytest.mark.parametrize(
    "batch_size",
    [
        8_000,
        pytest.param(
            15_500,
            marks=pytest.mark.xfail(
                strict=False, reason="what waits is counted for the first guess, not for the slices"
            ),
        ),
    ],
)
def test_slices_share_the_card_with_the_whole_batch(batch_size):
    """A forecast holds two micro-batches, the one before and this one; here the whole batch is there instead."""
    made = plan(lambda: nn.Linear(16_384, 16), rows(16_384), batch_size=batch_size, card=CARD, memory="1GiB")
    assert made.slices > 1
    sample = 16_384 * 4
    assert made.forecast.reserved - 2 * made.micro_batch * sample + batch_size * sample <= GIB


# Models with BatchNorm, and slicing that is forbidden


def test_a_model_with_batch_norm_is_not_sliced():
    with pytest.raises(NothingFits, match="has BatchNorm, so slicing would be another training") as refused:
        plan(normalised, images, batch_size=8192, card=CARD, memory="1GiB")
    assert refused.value.exit_code == 3
    assert "sliceable=True allows it" in str(refused.value)
    assert "samples do" in str(refused.value)


def test_a_model_with_batch_norm_is_sliced_on_request():
    made = plan(normalised, images, batch_size=8192, card=CARD, memory="1GiB", sliceable=True)
    assert made.slices > 1


def test_a_model_with_batch_norm_whose_batch_fits_is_no_matter():
    assert plan(normalised, images, batch_size=64, card=CARD).slices == 1


def test_slicing_can_be_forbidden():
    with pytest.raises(NothingFits, match="sliceable=False forbids slicing: choose a smaller batch"):
        plan(mlp, rows(1024), batch_size=65_536, card=CARD, memory="1GiB", sliceable=False)
    assert plan(mlp, rows(1024), batch_size=64, card=CARD, sliceable=False).slices == 1


@pytest.mark.xfail(raises=ModelError, strict=False, reason="one sample is tried, which BatchNorm1d refuses in training")
def test_a_model_that_needs_two_samples_is_planned():
    model = lambda: nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 8))  # noqa: E731
    assert plan(model, rows(64), batch_size=64, card=CARD).slices == 1


# Nothing fits


def test_nothing_fits_says_how_much_is_missing_and_what_helps():
    with pytest.raises(NothingFits) as refused:
        plan(mlp, rows(1024), batch_size=64, card="NVIDIA A10G", memory="100MiB")
    error = refused.value
    assert isinstance(error, CannotFit)
    assert isinstance(error, BrimError)
    assert error.exit_code == 3
    assert str(error).startswith("not even one sample fits: it needs ")
    assert "99.0 MiB can be used on NVIDIA A10G" in str(error)
    missing = (error.forecast.reserved - int(0.99 * 100 * 2**20)) / 2**20
    assert f"{missing:,.1f} MiB are missing" in str(error)
    assert "\n" not in str(error)
    assert error.forecast.batch_size == 1
    assert len(error.remedies) == 3
    for remedy in error.remedies:
        assert remedy.reserved > 0
        assert remedy.sentence in str(error)


# What waits while slices are computed


@pytest.mark.xfail(strict=False, reason="the forecast of a slice has no gradients of the slices before it")
def test_slices_leave_room_for_the_gradients_of_those_before_them():
    deep = lambda: nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(20)))  # noqa: E731
    made = plan(deep, rows(2048), batch_size=8192, card=CARD, memory="2GiB")
    assert made.slices > 1
    assert search(deep, rows(2048), 2 * GIB, accumulation=2).fits(made.micro_batch)


@pytest.mark.xfail(raises=CannotFit, strict=False, reason="the search for a narrower slice refuses on its own")
def test_a_batch_that_leaves_no_room_for_a_slice_is_refused_for_what_it_is():
    """One sample alone would fit; what does not is the batch that lies beside it."""
    deep = lambda: nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(20)))  # noqa: E731
    with pytest.raises(NothingFits) as refused:
        plan(deep, rows(2048), batch_size=65_536, card=CARD, memory="2GiB")
    assert "not even a batch of 1" not in str(refused.value)


@pytest.mark.xfail(strict=False, reason="what waits is not counted where it is more than the card has")
def test_a_batch_that_is_larger_than_the_card_is_refused():
    wide = lambda: nn.Linear(1 << 16, 16)  # noqa: E731
    with pytest.raises(CannotFit):  # 16 GiB of samples on a card of 1 GiB
        plan(wide, rows(1 << 16), batch_size=65_536, card=CARD, memory="1GiB")


@pytest.mark.xfail(raises=OutOfMemory, strict=False, reason="a slice may fail to fit where a larger one fits")
@pytest.mark.parametrize("batch_size", [44_000, 64_000, 92_000])
def test_slices_fit_whatever_the_fragmentation(batch_size):
    model = lambda: nn.Sequential(nn.Linear(4, 1024), nn.ReLU(), nn.Linear(1024, 1))  # noqa: E731
    made = plan(model, rows(4), None, sgd, batch_size=batch_size, card=CARD, memory="256MiB")
    assert search(model, rows(4), GIB // 4, optimizer=sgd).fits(made.micro_batch)


# What goes in and out


def test_a_plan_is_plain_data():
    made = plan(mlp, rows(1024), batch_size=65_536, card=CARD, memory="1GiB")
    data = json.loads(json.dumps(made.as_json()))
    assert data["micro_batch"] == made.micro_batch
    assert data["slices"] == made.slices
    assert data["largest_micro_batch"] == made.largest
    assert data["limit"] == GIB
    assert data["reasons"] == list(made.reasons)
    assert data["advice"] == list(made.advice)
    assert sum(data["forecast"]["parts"].values()) == data["forecast"]["device"]


@pytest.mark.parametrize(
    ("written", "size"),
    [("1GiB", GIB), ("1G", GIB), (GIB, GIB), ("1024 MiB", GIB), ("1.5GB", 1_500_000_000), ("800 mb", 800_000_000)],
    ids=str,
)
def test_memory_is_written_as_people_write_it(written, size):
    assert plan(mlp, rows(1024), batch_size=8, card=CARD, memory=written, optimizer=sgd).limit == size


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"memory": "nonsense"}, "memory='nonsense' is not an amount of memory"),
        ({"memory": 0}, "memory=0"),
        ({"memory": "-1GiB"}, "memory='-1GiB'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.0}, "batch_size=2.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"precision": "8"}, "precision='8' is not known"),
        ({"card": "NVIDIA Q1"}, "no card is known as 'NVIDIA Q1'"),
        ({"runtime": "new"}, "runtime='new' is not a torch version"),
    ],
    ids=str,
)
def test_bad_arguments_are_one_sentence(wrong, part):
    with pytest.raises(ConfigError) as refused:
        plan(mlp, rows(1024), **{"batch_size": 8, "card": CARD, **wrong})
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.xfail(strict=False, reason="plan does not look at gpus=")
@pytest.mark.parametrize("gpus", [0, -1, "2", True])
def test_a_bad_number_of_gpus_is_refused(gpus):
    with pytest.raises(ConfigError, match="gpus="):
        plan(mlp, rows(1024), batch_size=8, card=CARD, gpus=gpus)


def test_several_gpus_are_advice():
    made = plan(mlp, rows(1024), batch_size=100, card=CARD, gpus=8)
    assert any("on 8 GPUs with DDP each would take 13 samples" in advice for advice in made.advice)
