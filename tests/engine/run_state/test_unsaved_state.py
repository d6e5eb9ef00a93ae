"""What data and callbacks keep is in no checkpoint; a run that goes on without it says so, and only then."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

import brim
from brim.engine.run_state.unsaved_state import UnsavedState

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))


class Scaled(Dataset):
    def __init__(self):
        self.scale, self.noise, self.reads, self.length = 1.0, "none", 0, None

    def __len__(self):
        self.length = len(X)
        return self.length

    def __getitem__(self, index):
        self.noise = f"{index}"  # which nobody reads
        return X[index] * self.scale, X[index, :1]


class Fading(brim.Callback):
    """Lets the data fade."""

    def __init__(self, data):
        self.data = data

    def on_step_end(self, trainer, step, loss):
        self.data.scale *= 0.9
        if step == 3:
            trainer.stop("for a while")


def told(moved_by, builds=lambda data: None, kind=Scaled):
    data = kind()
    state = UnsavedState([DataLoader(data), Fading(data)])
    state.begin()
    moved_by(data)
    again = kind()
    resumed = UnsavedState([DataLoader(again), Fading(again)])
    resumed.expect(state.take())
    builds(again)
    return resumed.begin()


def test_a_number_that_moved_and_is_not_built_again_is_told():
    assert "Scaled.scale had changed by then" in told(lambda data: setattr(data, "scale", 0.5))


def test_a_number_of_the_class_that_an_object_gets_a_value_of_its_own_for_is_told():
    class Counting(Scaled):
        reads = 0

        def __init__(self):
            super().__init__()
            del self.reads

        def __getitem__(self, index):
            self.reads += 1
            return X[index] * self.reads

    assert "Counting.reads had changed by then" in told(lambda data: data[3], kind=Counting)


@pytest.mark.parametrize(
    ("moved_by", "builds"),
    [
        (lambda data: None, lambda data: None),
        (lambda data: setattr(data, "scale", 0.5), lambda data: setattr(data, "scale", 0.5)),
        (lambda data: data[3], lambda data: None),
        (lambda data: len(data), lambda data: None),
        (lambda data: setattr(data, "new", 0.5), lambda data: None),
    ],
    ids=["nothing moved", "built so again", "nobody reads it", "made lazily", "was not there"],
)
def test_nothing_else_is(moved_by, builds):
    assert told(moved_by, builds) is None


class Drawing(Scaled):
    """Draws from a generator of its own, weighs its samples, and keeps what it has read."""

    def __init__(self):
        super().__init__()
        self.rng, self.weights, self.hard = random.Random(0), np.ones(12), []
        self.cache, self.rows, self.file = {}, [None] * 12, None

    def __getitem__(self, index):
        self.file = self.file or object()
        self.rows[index] = self.cache[index] = X[index]
        return self.cache[index] * self.rng.random() * self.weights[index] * len(self.hard), self.rows[index]


@pytest.mark.parametrize(
    ("moved_by", "name"),
    [
        (lambda data: data[3], "Drawing.rng"),
        (lambda data: data.weights.__setitem__(3, 0.5), "Drawing.weights"),
        (lambda data: data.hard.append(3), "Drawing.hard"),
    ],
    ids=["a generator", "an array", "a list"],
)
def test_generators_and_small_arrays_and_containers_are_looked_at_but_not_caches_that_fill(moved_by, name):
    assert str(told(moved_by, kind=Drawing)).startswith(f"{name} had changed by then")


def test_a_generator_that_is_put_back_is_not_told():
    data = Drawing()
    state = UnsavedState([data], but_for=[data.rng])
    state.begin()
    assert data[3] and state.take() == {}


def test_what_a_data_set_names_is_looked_at_too():
    class Growing:
        def __init__(self):
            self.calls = 0

        def __call__(self, x):
            self.calls += 1
            return x * self.calls

    grow = Growing()

    class Grown(Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, index):
            return grow(X[index])

    state = UnsavedState([DataLoader(Grown())])
    state.begin()
    grow(X)
    assert state.take() == {"Growing.calls": 1}


def test_callbacks_that_keep_their_state_and_epochs_that_samplers_are_told_are_left_out():
    class Counts(brim.Callback):
        def __init__(self):
            self.steps = 0

        def state_dict(self):
            return {"steps": self.steps}

        def load_state_dict(self, state):
            self.steps = state["steps"]

    class ByEpoch(Sampler):
        def __init__(self):
            self.epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

    counts, sampler = Counts(), ByEpoch()
    state = UnsavedState([counts, sampler])
    state.begin()
    counts.steps = sampler.epoch = 2
    assert state.take() == {}


def test_a_run_that_is_resumed_without_it_says_so(tmp_path):
    def fit(resume):
        data = Scaled()
        trainer = brim.Trainer(
            nn.Linear(3, 1), DataLoader(data, 4), loss_fn=nn.MSELoss(), device="cpu", threads=1, epochs=2,
            run_dir=tmp_path / "run", callbacks=[Fading(data)], loggers=False,
        )  # fmt: skip
        trainer.fit(resume=resume)
        return (tmp_path / "run" / "log.txt").read_text()

    assert "Scaled.scale had changed by then" not in fit(None)
    assert "Scaled.scale had changed by then, and no checkpoint holds what data and callbacks keep" in fit("auto")


def test_not_a_number_is_no_other_number_than_before():
    class Best(brim.Callback):
        def __init__(self):
            self.best = float("nan")

        def on_step_end(self, trainer, step, loss):
            self.best = min(self.best, float(loss))

    best = Best()
    state = UnsavedState([best])
    state.begin()
    assert state.take() == {}
    best.best = 1.0
    state.begin()
    best.best = float("nan")
    state.expect(state.take())
    best.best = -float("nan")
    assert state.begin() is None
