"""Samplers that draw or count by themselves: a resumed run reads the epoch that it was in, or says that it cannot."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

import brim
from brim.data import as_feed
from brim.engine.run_state.user_order import order_states, restore_order
from brim.errors import RunFolderError

pytestmark = pytest.mark.usefixtures("own_folder")

SAMPLES, EPOCHS = 40, 3
X = torch.arange(float(SAMPLES))[:, None]


class Drawing(Sampler):
    """Draws from a generator of its own, which goes on from epoch to epoch."""

    def __init__(self, generator):
        self.generator = generator

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        if isinstance(self.generator, torch.Generator):
            return iter(torch.randperm(SAMPLES, generator=self.generator).tolist())
        numbers = list(range(SAMPLES))
        self.generator.shuffle(numbers)
        return iter(numbers)


class Counting(Sampler):
    """Counts epochs by itself, which no checkpoint knows of."""

    def __init__(self):
        self.epoch = 0

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        self.epoch += 1
        return iter(np.random.default_rng(self.epoch).permutation(SAMPLES).tolist())


GENERATORS = {
    "torch": lambda: torch.Generator().manual_seed(3),
    "python": lambda: random.Random(3),
    "numpy": lambda: np.random.default_rng(3),
    "numpy, as it was": lambda: np.random.RandomState(3),
}


def own_sampler(generator):
    return DataLoader(TensorDataset(X, X), 8, sampler=Drawing(generator))


def own_generator(generator):
    return DataLoader(TensorDataset(X, X), 8, shuffle=True, generator=generator)


def train(data, stop_at=None, resume=None, **settings):
    seen = []

    class Stop(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == stop_at:
                trainer.stop("for a while")

    def loss(model, batch):
        seen.extend(batch[0].flatten().int().tolist())
        return model(batch[0] * 0).square().mean()

    brim.Trainer(
        nn.Linear(1, 1), data, loss_fn=loss, device="cpu", threads=1, epochs=EPOCHS, run_dir="run", callbacks=[Stop()],
        **settings,
    ).fit(resume=resume)  # fmt: skip
    return seen


@pytest.mark.matrix(3)
@pytest.mark.parametrize("stop_at", [2, 5, 8, 10, 13])
@pytest.mark.parametrize("kind", GENERATORS)
def test_what_a_sampler_draws_goes_on_with_a_resumed_run(kind, stop_at):
    first = train(own_sampler(GENERATORS[kind]()), stop_at)
    second = train(own_sampler(GENERATORS[kind]()), resume="run")
    sampler = Drawing(GENERATORS[kind]())
    assert first + second == [number for _ in range(EPOCHS) for number in sampler]


@pytest.mark.parametrize("stop_at", [2, 5, 8])
def test_so_does_what_a_loader_of_torchs_draws(stop_at):
    seen = train(own_generator(GENERATORS["torch"]()), stop_at)
    seen += train(own_generator(GENERATORS["torch"]()), resume="run")
    epochs = [sorted(seen[start : start + SAMPLES]) for start in range(0, EPOCHS * SAMPLES, SAMPLES)]
    assert epochs == [list(range(SAMPLES))] * EPOCHS


def test_an_epoch_that_begins_otherwise_is_refused_within_it():
    data = DataLoader(TensorDataset(X, X), 8, sampler=Counting())
    train(data, stop_at=8)
    with pytest.raises(RunFolderError, match="does not begin as it did"):
        train(DataLoader(TensorDataset(X, X), 8, sampler=Counting()), resume="run")


def test_at_its_end_it_goes_on():
    class Fails(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 7:
                raise LookupError("a mistake of the user's")

    def loader():
        return DataLoader(TensorDataset(X, X), 8, sampler=Counting())

    with pytest.raises(LookupError):
        brim.Trainer(
            nn.Linear(1, 1), loader(), loss_fn=nn.MSELoss(), lr=1e-6, device="cpu", epochs=EPOCHS, run_dir="run",
            callbacks=[Fails()],
        ).fit()  # fmt: skip
    assert len(train(loader(), resume="run", lr=1e-6)) == 2 * SAMPLES


@pytest.mark.parametrize("kind", GENERATORS)
def test_states_of_generators_are_put_back(kind):
    feed = as_feed(own_sampler(generator := GENERATORS[kind]()))
    states = order_states(feed)
    torch.save(states, "states.pt")
    first = list(Drawing(generator))
    restore_order(feed, torch.load("states.pt", weights_only=True))
    assert list(Drawing(generator)) == first
