import json

import pytest
import torch
from torch import nn

import brim
from brim.errors import BrimError, CannotFit, ConfigError
from brim.memory.forecast import make_job, make_setting
from brim.memory.planning.largest import Search
from brim.memory.planning.plan import NothingFits, plan

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
    assert (made.largest, made.larger_may_fit) == (64 * 64, True)  # it looks no further, and says so
    assert made.forecast.batch_size == 64
    assert made.forecast.fits
    assert "the whole batch fits at once" in made.reasons[0]
    assert any("a larger batch would fit" in advice for advice in made.advice)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("batch_size", [14_300, 20_000, 65_536, 65_537])
def test_a_batch_that_does_not_fit_is_cut_into_equal_slices_that_do(batch_size):
    made = plan(mlp, rows(1024), batch_size=batch_size, card=CARD, memory="1GiB")
    assert made.slices > 1
    assert made.slices * made.micro_batch >= batch_size
    assert made.micro_batch == -(-batch_size // made.slices)  # equal: no slice is more than one part smaller
    assert made.micro_batch <= made.largest < batch_size
    assert not made.larger_may_fit
    assert made.limit == GIB
    assert made.forecast.reserved <= GIB
    found = search(mlp, rows(1024), GIB)
    assert found.fits(made.micro_batch)
    assert found.fits(made.largest)
    assert not found.fits(int(made.largest * 1.1))
    assert f"{made.slices} micro-batches of" in made.reasons[0]


def test_as_many_as_fit_exactly_are_one_slice():
    largest = brim.largest_batch(mlp, rows(1024), card=CARD, memory="1GiB")
    assert plan(mlp, rows(1024), batch_size=largest, card=CARD, memory="1GiB").slices == 1


def test_the_forecast_of_a_plan_is_that_of_the_micro_batch():
    made = plan(mlp, rows(1024), batch_size=64, card=CARD)
    alone = brim.forecast(mlp, rows(1024), batch_size=64, card=CARD)
    assert (made.forecast.parts, made.forecast.reserved) == (alone.parts, alone.reserved)


def widening(n):
    return (torch.empty(n, 16_384),), {}


def test_slices_share_the_card_with_the_whole_batch():
    """400 MiB of samples, and as much for the next ones while they are copied."""
    model = lambda: nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Linear(16_384, 16))  # noqa: E731
    made = plan(model, widening, None, sgd, batch_size=6_400, card=CARD, memory="1GiB")
    assert made.slices > 1
    assert made.forecast.allocated >= 6_400 * 16_384 * 4
    assert made.forecast.reserved <= GIB


def test_the_next_batch_is_copied_before_the_last_one_goes():
    """500 MiB of samples would fit once, and do not fit twice."""
    with pytest.raises(NothingFits, match="does not fit on NVIDIA H200 even in micro-batches, because all of it lies"):
        plan(lambda: nn.Linear(16_384, 16), widening, None, sgd, batch_size=8_200, card=CARD, memory="1GiB")


# Models with BatchNorm, and slicing that is forbidden


def test_a_model_with_batch_norm_is_not_sliced():
    with pytest.raises(NothingFits, match="has BatchNorm, so splitting would be another training") as refused:
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
    with pytest.raises(NothingFits, match="sliceable=False forbids splitting: choose a smaller batch"):
        plan(mlp, rows(1024), batch_size=65_536, card=CARD, memory="1GiB", sliceable=False)
    assert plan(mlp, rows(1024), batch_size=64, card=CARD, sliceable=False).slices == 1


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
    assert error.remedies[-1].name == "a higher limit (memory=, --memory), or none"
    for remedy in error.remedies:
        assert remedy.reserved > 0
        assert remedy.sentence in str(error)


def test_a_card_that_is_too_small_is_told_about_with_a_larger_one():
    huge = lambda: nn.Sequential(*(nn.Linear(16_384, 16_384) for _ in range(8)))  # noqa: E731
    with pytest.raises(NothingFits, match="a larger card, such as ") as refused:
        plan(huge, rows(16_384), batch_size=8, card="NVIDIA A10G")
    assert "a higher limit" not in str(refused.value)


# What waits while slices are computed


@pytest.mark.slow
def test_slices_leave_room_for_the_gradients_of_those_before_them():
    deep = lambda: nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(20)))  # noqa: E731
    made = plan(deep, rows(2048), batch_size=8192, card=CARD, memory="2GiB")
    assert made.slices > 1
    assert search(deep, rows(2048), 2 * GIB, accumulation=2).fits(made.micro_batch)


def test_a_batch_that_leaves_no_room_for_a_slice_is_refused_for_what_it_is():
    """One sample alone would fit; what does not is the batch that lies beside it."""
    deep = lambda: nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(20)))  # noqa: E731
    with pytest.raises(NothingFits) as refused:
        plan(deep, rows(2048), batch_size=65_536, card=CARD, memory="2GiB")
    assert "not even a batch of 1" not in str(refused.value)


def test_a_batch_that_is_larger_than_the_card_is_refused():
    wide = lambda: nn.Linear(1 << 16, 16)  # noqa: E731
    with pytest.raises(CannotFit):  # 16 GiB of samples on a card of 1 GiB
        plan(wide, rows(1 << 16), batch_size=65_536, card=CARD, memory="1GiB")


@pytest.mark.matrix(1)
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
    assert (data["largest_micro_batch"], data["larger_may_fit"]) == (made.largest, False)
    assert data["limit"] == GIB
    assert data["reasons"] == list(made.reasons)
    assert data["advice"] == list(made.advice)
    assert sum(data["forecast"]["parts"].values()) == data["forecast"]["device"]


@pytest.mark.matrix(3)
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


@pytest.mark.parametrize("gpus", [0, -1, "2", True])
def test_a_bad_number_of_gpus_is_refused(gpus):
    with pytest.raises(ConfigError, match="gpus="):
        plan(mlp, rows(1024), batch_size=8, card=CARD, gpus=gpus)


# Steps over several batches, and micro-batches that were decided before


def test_batches_that_add_up_lie_on_the_card_together():
    one, four = (plan(mlp, rows(1024), batch_size=8192, card=CARD, accumulation=n) for n in (1, 4))
    assert four.forecast.allocated >= one.forecast.allocated + 3 * 8192 * 1024 * 4
    assert (four.batch_size, four.slices) == (8192, 1)
    assert "a step adds up 4 batches, which all lie on the card" in four.reasons


def test_batches_that_add_up_are_sliced_where_one_alone_would_fit():
    alone = plan(mlp, rows(1024), batch_size=12_000, card=CARD, memory="1GiB")
    added = plan(mlp, rows(1024), batch_size=12_000, card=CARD, memory="1GiB", accumulation=8)
    assert alone.slices == 1 < added.slices
    assert "a step over 8 batches of 12,000 does not fit at once" in added.reasons[0]
    assert added.forecast.reserved <= GIB


def test_a_batch_that_waits_for_its_step_takes_its_room():
    alone, waiting = (plan(mlp, rows(1024), batch_size=8192, card=CARD, prefetched=n) for n in (0, 1))
    assert waiting.forecast.allocated >= alone.forecast.allocated + 8192 * 1024 * 4
    assert waiting.reasons == alone.reasons


def test_too_many_batches_for_the_card_are_refused():
    with pytest.raises(NothingFits, match=r"even in micro-batches.*: choose smaller batches, or fewer in a step"):
        plan(mlp, rows(1024), batch_size=8192, card=CARD, memory="1GiB", accumulation=64)


@pytest.mark.matrix(2)
@pytest.mark.parametrize(("micro_batch", "slices"), [(16, 4), (10, 7), (64, 1), (100, 1)])
def test_a_micro_batch_that_is_given_is_kept(micro_batch, slices):
    made = plan(mlp, rows(1024), batch_size=64, card=CARD, micro_batch=micro_batch)
    assert (made.micro_batch, made.slices) == (min(64, micro_batch), slices)
    assert made.forecast.batch_size == made.micro_batch
    assert ("as it was asked for" in made.reasons[0]) == (slices > 1)


def test_a_micro_batch_that_is_given_has_a_forecast_of_its_own():
    whole, sliced = (plan(mlp, rows(1024), batch_size=32_768, card=CARD, micro_batch=n) for n in (None, 1024))
    assert sliced.forecast.reserved < whole.forecast.reserved
    assert search(mlp, rows(1024), sliced.forecast.reserved * 2, accumulation=2).fits(1024)


@pytest.mark.parametrize("micro_batch", [60_000, 65_536, 70_000])
def test_a_micro_batch_that_does_not_fit_is_refused_with_what_does(micro_batch):
    with pytest.raises(NothingFits, match=f"samples do, and micro_batch={micro_batch:,} does not") as refused:
        plan(mlp, rows(1024), batch_size=65_536, card=CARD, memory="1GiB", micro_batch=micro_batch)
    assert refused.value.exit_code == 3


def test_a_micro_batch_that_is_given_slices_a_model_with_batch_norm():
    assert plan(normalised, images, batch_size=64, card=CARD, micro_batch=16).slices == 4


@pytest.mark.parametrize(
    "wrong",
    [{"accumulation": 0}, {"accumulation": "2"}, {"prefetched": -1}, {"micro_batch": 0}, {"micro_batch": "auto"},
     {"micro_batch": 4, "sliceable": False}],
    ids=str,
)  # fmt: skip
def test_bad_slices_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        plan(mlp, rows(1024), batch_size=8, card=CARD, **wrong)


@pytest.mark.parametrize(("card", "precision"), [("Tesla T4", "fp16"), (CARD, "bf16")])
def test_precision_auto_is_what_the_card_computes_in(card, precision):
    assert plan(mlp, rows(1024), batch_size=8, card=card, precision="auto").forecast.precision == precision
    assert brim.forecast(mlp, rows(1024), batch_size=8, card=card, precision="auto").precision == precision


def test_several_gpus_are_advice():
    made = plan(mlp, rows(1024), batch_size=100, card=CARD, gpus=8)
    assert any("on 8 GPUs with DDP each would take 13 samples" in advice for advice in made.advice)
