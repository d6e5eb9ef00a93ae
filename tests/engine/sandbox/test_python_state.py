"""Whatever users' code keeps in Python is put back in place."""

import importlib
import itertools
import random
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch
from torch import nn

from brim.engine.sandbox.python_state import CannotPutBack, PythonState

STEPS = 0
TABLE = {"seen": []}


class Holder:
    shared = 0
    kept: list[int] = []  # noqa: RUF012 (that all of a class share one is the point)
    __slots__ = ("__hidden", "value")

    def __init__(self) -> None:
        self.value = 1
        self.__hidden = [1]

    def move(self) -> None:
        self.value += 1
        self.__hidden.append(2)
        type(self).shared += 1
        self.kept.append(1)

    def look(self) -> tuple[object, ...]:
        return self.value, tuple(self.__hidden), type(self).shared, tuple(self.kept)


class Counting(nn.Module):
    calls_of_all = 0

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(2, 1)
        self.calls, self.history, self.running = 0, [], torch.zeros(2)
        self.numbers = itertools.count()
        self.register_buffer("place", torch.zeros(1))

    def forward(self, x):
        global STEPS
        STEPS += 1
        TABLE["seen"].append(STEPS)
        self.calls += 1
        type(self).calls_of_all += 1
        self.history.append(x)
        self.running += 1
        next(self.numbers)
        self.place = torch.ones(1)
        self.fresh = True
        return self.part(x)


def facts(model: Counting) -> tuple[object, ...]:
    return (
        STEPS, list(TABLE["seen"]), model.calls, Counting.calls_of_all, len(model.history), model.running.tolist(),
        repr(model.numbers), float(model.place), hasattr(model, "fresh"),
    )  # fmt: skip


def test_what_a_model_counts_keeps_and_rebinds_is_as_before() -> None:
    model = Counting()
    model(torch.ones(3, 2))
    before, history, seen = facts(model), model.history, TABLE["seen"]
    del model.fresh
    before = facts(model)
    state = PythonState(model)
    for _ in range(2):
        model(torch.ones(3, 2))
        state.restore()
        assert facts(model) == before
        assert model.history is history and TABLE["seen"] is seen


def test_closures_defaults_and_nonlocals_are_put_back() -> None:
    calls, memory, best = 0, deque([1, 2], maxlen=2), [3.0]

    def loss(model, batch, kept=[]):  # noqa: B006 (a default that keeps something is the point)
        nonlocal calls
        calls += 1
        memory.append(calls)
        kept.append(1)
        best[0] = min(best[0], 1.0)
        loss.last = calls
        return [best for _ in range(1)]

    state = PythonState(lambda model, batch: loss(model, batch))
    loss(None, None)
    state.restore()
    assert (calls, list(memory), best, loss.__defaults__) == (0, [1, 2], [3.0], ([],))
    assert not hasattr(loss, "last")


def test_what_a_library_wraps_around_a_function_is_left_alone_and_the_function_put_back(monkeypatch) -> None:
    calls = 0

    @torch.compile(backend="eager")
    def score(x):
        nonlocal calls
        calls += 1
        return x

    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    monkeypatch.setattr(eval_frame, "_stance", eval_frame._stance)  # put back afterwards
    state = PythonState(torch.no_grad()(score))
    calls, eval_frame._stance = 1, "another"
    state.restore()
    assert (calls, eval_frame._stance) == (0, "another")


def test_objects_with_slots_and_class_attributes_are_put_back() -> None:
    holder = Holder()
    before = holder.look()
    state = PythonState(holder.move)
    holder.move()
    assert holder.look() != before
    state.restore()
    assert holder.look() == before


@pytest.mark.parametrize(
    "container", [{"a": 1}, Counter(a=1), defaultdict(list, a=[1]), OrderedDict(a=1), {1, 2}, bytearray(b"ab"), [1, 2]]
)
def test_containers_keep_their_identity_and_get_their_content_back(container) -> None:
    def change(*_):
        if isinstance(container, set):
            container.add(3)
        elif isinstance(container, dict):
            container["b"] = 2
        else:
            container.append(99)

    before, state = repr(container), PythonState(change)
    change()
    assert repr(container) != before
    state.restore()
    assert repr(container) == before


def test_generators_of_every_kind_are_put_back() -> None:
    own = {
        "torch": torch.Generator().manual_seed(1),
        "python": random.Random(1),
        "numpy": np.random.default_rng(1),
        "old numpy": np.random.RandomState(1),
    }

    def draw():
        return (
            float(torch.rand((), generator=own["torch"])), own["python"].random(), own["numpy"].random(),
            own["numpy"].normal(), own["old numpy"].rand(),
        )  # fmt: skip

    state = PythonState(draw)
    drawn = draw()
    state.restore()
    assert draw() == drawn


def test_loose_tensors_and_arrays_get_their_content_back() -> None:
    mean, table = torch.zeros(3), np.zeros(3)

    def loss(*_):
        mean.add_(1)
        mean.data.add_(1)
        table[0] += 1

    state = PythonState(loss)
    loss()
    state.restore()
    assert mean.tolist() == [0, 0, 0] and table.tolist() == [0, 0, 0]


def test_weights_that_somebody_else_keeps_are_not_copied_and_stay_where_they_are() -> None:
    model = nn.Linear(4, 4)
    weight, place = model.weight, model.weight.data_ptr()
    state = PythonState(model, but_for=[model])
    with torch.no_grad():
        model.weight.add_(1)
    moved = model.weight.clone()
    state.restore()
    assert model.weight is weight and weight.data_ptr() == place and torch.equal(weight, moved)


def test_what_other_models_hold_that_a_loss_reaches_is_put_back() -> None:
    teacher, critic = nn.Linear(2, 1), nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    optimizer = torch.optim.Adam(critic.parameters())

    def loss(model, batch):
        for parameter in teacher.parameters():
            parameter.data.mul_(0.9)
        optimizer.zero_grad()
        critic(batch).sum().backward()
        optimizer.step()

    before = [tensor.clone() for module in (teacher, critic) for tensor in module.state_dict().values()]
    state = PythonState(loss)
    loss(None, torch.ones(4, 2))
    state.restore()
    after = [tensor for module in (teacher, critic) for tensor in module.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not optimizer.state


@pytest.mark.parametrize("kind", ["generator", "loader", "file", "many objects"])
def test_what_cannot_be_put_back_is_an_error_before_anything_is_called(kind, tmp_path) -> None:
    from torch.utils.data import DataLoader

    held = {
        "generator": lambda: (x for x in range(3)),
        "loader": lambda: iter(DataLoader([1, 2, 3])),
        "file": lambda: (tmp_path / "log").open("w"),
        "many objects": lambda: [[number] for number in range(20_000)],
    }[kind]()

    def loss(model, batch):
        return held

    with pytest.raises(CannotPutBack):
        PythonState(loss)
