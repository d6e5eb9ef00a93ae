import gc
import weakref

import pytest
import torch
from helpers.faults import ran_out
from torch import nn

from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.oom.ladder import Ladder, cache_bytes
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.errors import CannotFit
from brim.workloads.recommender import EmbeddedDataset, Triples
from brim.workloads.recommender.gpt2_recommender import GPT2RecommenderEnhanced

CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(0.3)

    def forward(self, x):
        return x + self.dropout(self.linear(x).tanh())


class Cached(nn.Module):
    """Blocks, and encodings that can be kept or computed."""

    cache_buffers = ("encodings",)

    def __init__(self, use_cache=True):
        super().__init__()
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(4, 1)
        self.use_cache = use_cache

    @property
    def use_cache(self):
        return self.encodings is not None

    @use_cache.setter
    def use_cache(self, kept):
        self.register_buffer("encodings", torch.ones(1 << 18) if kept else None, persistent=False)

    def forward(self, x):
        return self.head(self.blocks(x))


def net(kind=Cached):
    torch.manual_seed(0)
    return kind()


def unknown():
    return None


def estimates(*numbers):
    answers = list(numbers)
    return lambda: answers.pop(0)


# The rungs


def test_checkpointing_comes_first_then_the_cache_and_then_nothing():
    ladder = Ladder(net(), None)
    assert "activations of 2 blocks are computed again" in ladder.next(unknown)
    assert ladder.checkpointing.is_on
    assert ladder.model.use_cache
    assert "encodings of 1.0 MiB are computed in every step" in ladder.next(unknown)
    assert not ladder.model.use_cache
    assert ladder.next(unknown) is None
    assert ladder.next(unknown) is None


def test_what_the_forecast_says_is_told():
    assert "(forecast 1.00 GiB instead of 2.00 GiB)" in Ladder(net(), None).next(estimates(2 << 30, 1 << 30))


@pytest.mark.parametrize("after", [100, 101])
def test_a_rung_without_a_gain_is_undone_and_skipped(after):
    ladder = Ladder(net(), None)
    assert "encodings" in ladder.next(estimates(100, after, 100, 50))
    assert not ladder.checkpointing.is_on
    assert not ladder.model.use_cache


def test_rungs_without_a_gain_leave_the_model_as_it_was():
    ladder = Ladder(net(), None)
    assert ladder.next(estimates(100, 100, 100, 100)) is None
    assert ladder.model.use_cache
    assert not ladder.checkpointing.is_on


def test_checkpointing_true_is_on_from_the_start_and_false_never():
    always, never = Ladder(net(), True), Ladder(net(), False)
    assert always.checkpointing.is_on
    assert "encodings" in always.next(unknown)
    assert "encodings" in never.next(unknown)
    assert not never.checkpointing.is_on


@pytest.mark.parametrize("model", [None, nn.Linear(2, 2)], ids=["no model", "no blocks"])
def test_where_there_is_nothing_to_take_the_ladder_is_empty(model):
    assert Ladder(model, None).next(unknown) is None


# The rungs within the step


def batch(step=0, size=4):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(size, 4, generator=generator), torch.randn(size, 1, generator=generator)


class Tight:
    """A loss that fits only once the model is on some rung."""

    def __init__(self, model, fits):
        self.model, self.fits = model, fits

    def __call__(self, data):
        if self.model.training and not self.fits(self.model, len(data[0])):
            raise ran_out()
        return nn.functional.mse_loss(self.model(data[0]), data[1])


def is_on(model):
    return "forward" in vars(model.blocks[0])


def guarded(fits, told, model=None, **settings):
    model = model or net()
    step = EagerStep(Tight(model, fits), torch.optim.AdamW(model.parameters()), Precision("32", CPU))
    return GuardedStep(step, model, lambda sentence, **facts: told.append(sentence), **settings)


def train(guard, steps=2):
    torch.manual_seed(1)
    for step in range(steps):
        guard([batch(step)])
    return torch.cat([p.detach().flatten() for p in guard.model.parameters()])


def test_when_one_sample_does_not_fit_blocks_are_computed_again_and_larger_slices_tried():
    told = []
    guard = guarded(lambda model, samples: is_on(model), told)
    trained = train(guard)
    assert guard.micro_batch is None
    assert guard.model.use_cache
    assert (
        "no memory for two samples), so the batch stays whole: the activations of 2 blocks are computed again"
        in " ".join(told)
    )
    plain = guarded(lambda model, samples: True, [])
    assert torch.equal(trained, train(plain))  # with dropout


def test_then_encodings_are_no_longer_kept():
    told = []
    guard = guarded(lambda model, samples: is_on(model) and not model.use_cache, told)
    train(guard)
    assert not guard.model.use_cache
    assert is_on(guard.model)
    assert "encodings" in " ".join(told)


def test_slices_may_be_needed_below_a_rung():
    guard = guarded(lambda model, samples: is_on(model) and samples <= 2, [])
    train(guard)
    assert guard.micro_batch == 2


def test_a_loss_that_must_not_be_sliced_takes_the_rungs():
    guard = guarded(lambda model, samples: is_on(model), [], sliceable=False)
    train(guard)
    assert guard.micro_batch is None


def test_at_the_end_of_the_ladder_it_says_that_it_cannot_fit_and_what_could_help():
    guard = guarded(lambda model, samples: False, [])
    with pytest.raises(CannotFit, match=r"stays whole, and nothing else is left to try: use a smaller model"):
        train(guard)
    assert CannotFit.exit_code == 3


def test_checkpointing_false_is_never_taken_in_a_step():
    guard = guarded(lambda model, samples: not model.use_cache, [], checkpointing=False)
    train(guard)
    assert not is_on(guard.model)


def test_encodings_that_are_given_up_are_given_back():
    guard = guarded(lambda model, samples: not model.use_cache, [], checkpointing=False)
    encodings = weakref.ref(guard.model.encodings)
    train(guard)
    gc.collect()
    assert encodings() is None


# The recommender


@pytest.fixture(scope="module")
def recommender():
    torch.manual_seed(0)
    return GPT2RecommenderEnhanced(12, 15, embed_dim=8, dataset=EmbeddedDataset(12, 15), hidden_dim=16)


def triples():
    return Triples(*(torch.randint(12, (6,), generator=torch.Generator().manual_seed(i)) for i in range(3)))


def test_the_recommenders_cached_encodings_are_seen(recommender):
    recommender.use_cache = True
    recommender.calculate_loss(triples())
    kept = recommender.users.encodings.numel() + recommender.items.encodings.numel()
    assert cache_bytes(recommender) == 4 * kept


def test_the_recommender_goes_on_without_its_cache(recommender):
    recommender.use_cache = True
    plain, compute = loss_of(recommender, None), []

    def tight(data):
        if recommender.training and recommender.use_cache:
            plain(data)  # the cache is made before memory runs out
            raise ran_out()
        compute.append(plain(data))
        return compute[-1]

    parameters = [p for p in recommender.parameters() if p.requires_grad]
    step = EagerStep(tight, torch.optim.AdamW(parameters), Precision("32", CPU))
    recommender.train()
    GuardedStep(step, recommender, checkpointing=False)([triples()])
    assert not recommender.use_cache
