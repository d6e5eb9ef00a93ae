"""What the code of a step names is found, wherever it stands; what it does not name is left alone."""

import contextlib
import functools
import itertools
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from brim.engine.captured.host.host_state import host_state, what_changed
from brim.engine.captured.host.host_watch import HostWatch, check_host
from brim.engine.captured.report import Refusal
from brim.engine.sandbox.named_state import NamedState

COUNT = 0
SEEN: list[int] = []
UNRELATED = 0
TEMPERATURE = 1.0
CYCLE = iter([1, 2, 3, 4, 5])
STREAM = (number for number in range(100))
OPTIONS = SimpleNamespace(temperature=1.0, names=["a"])
TEACHER = nn.Linear(2, 2)

settings = ModuleType("users_settings")
settings.TEMPERATURE = 1.0
settings.UNRELATED = 1.0
sys.modules["users_settings"] = settings


def count():
    global COUNT
    COUNT += 1


def helper():
    return [count() for _ in range(1)]


def scaled(x, seen=SEEN):
    seen.append(1)
    return x


@functools.cache
def cached(length):
    return length


def noted(x):
    noted.calls = getattr(noted, "calls", 0) + 1
    return x


def decorated(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


@decorated
def counts_within(x):
    count()
    return x


class Doubled(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Doubled.calls += 1
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Sampler:
    drawn = 0

    def draw(self, x):
        type(self).drawn += 1
        return x

    def report(self):
        return UNRELATED


class Base(nn.Module):
    steps = 0
    history: ClassVar[list[int]] = []

    def __init__(self):
        super().__init__()
        self.layer, self.sampler = nn.Linear(2, 2), Sampler()

    def count_in_the_class(self):
        Base.steps += 1

    def log(self):
        global UNRELATED
        UNRELATED += 1


def model_of(forward, **members):
    return type("Model", (Base,), {"forward": forward, "__module__": __name__, **members})()


def by_global(self, x):
    global COUNT
    COUNT += 1
    return self.layer(x)


def by_helper(self, x):
    helper()
    return self.layer(x)


def by_lambda(self, x):
    return (lambda value: [SEEN.append(1), value][1])(self.layer(x))


def by_comprehension(self, x):
    (found,) = [self.layer(x) for _ in range(1) if not SEEN.append(1)]
    return found


def by_method(self, x):
    self.count_in_the_class()
    return self.layer(x)


def by_class_list(self, x):
    self.history.append(1)
    return self.layer(x)


def by_property(self, x):
    return self.layer(x) * self.level


def by_default(self, x):
    return scaled(self.layer(x))


def by_module(self, x):
    settings.TEMPERATURE *= 0.99
    return self.layer(x) * settings.TEMPERATURE


def by_import(self, x):
    import users_settings

    users_settings.TEMPERATURE *= 0.99
    return self.layer(x)


def by_object(self, x):
    OPTIONS.temperature *= 0.99
    return self.layer(x)


def by_iterator(self, x):
    return self.layer(x) * next(CYCLE)


def by_generator(self, x):
    return self.layer(x) * next(STREAM)


def by_function_attribute(self, x):
    return noted(self.layer(x))


def by_decorator(self, x):
    return counts_within(self.layer(x))


def by_autograd_function(self, x):
    return Doubled.apply(self.layer(x))


def by_own_object(self, x):
    return self.sampler.draw(self.layer(x))


def by_other_model(self, x):
    TEACHER.calls = getattr(TEACHER, "calls", 0) + 1
    return self.layer(x) + TEACHER(x)


def by_context(self, x):
    with contextlib.nullcontext():
        count()
    return self.layer(x)


CHANGING = [
    by_global, by_helper, by_lambda, by_comprehension, by_method, by_class_list, by_default, by_module, by_import,
    by_object, by_iterator, by_generator, by_function_attribute, by_decorator, by_autograd_function, by_own_object,
    by_other_model, by_context,
]  # fmt: skip


@pytest.mark.parametrize("forward", CHANGING)
def test_what_a_forward_pass_changes_by_name_is_refused(forward):
    model = model_of(forward)
    model(torch.ones(1, 2))  # what is made once is made
    with pytest.raises(Refusal, match="changes with every step"):
        check_host(model, None, lambda: model(torch.ones(1, 2)))


def test_a_property_is_code_too():
    def level(self):
        count()
        return 1.0

    model = model_of(by_property, level=property(level))
    with pytest.raises(Refusal, match="COUNT changes"):
        check_host(model, None, lambda: model(torch.ones(1, 2)))


def test_the_loss_of_a_model_is_code_too():
    def calculate_loss(self, batch):
        count()
        return self.layer(batch).sum()

    model = model_of(lambda self, x: x, calculate_loss=calculate_loss)
    with pytest.raises(Refusal, match="COUNT changes"):
        check_host(model, None, lambda: model.calculate_loss(torch.ones(1, 2)))


def test_functions_that_a_loss_closes_over_are_read():
    kept = itertools.count()

    def inner(x):
        return x * next(kept)

    def loss_fn(model, batch):
        return inner(model.layer(batch)).sum()

    model = model_of(lambda self, x: x)
    with pytest.raises(Refusal, match="kept changes"):
        check_host(model, loss_fn, lambda: loss_fn(model, torch.ones(1, 2)))


class Criterion(nn.Module):
    def forward(self, found, target):
        count()
        return F.mse_loss(found, target)


def test_a_criterion_of_the_users_is_read():
    criterion, model = Criterion(), model_of(lambda self, x: self.layer(x))
    with pytest.raises(Refusal, match="COUNT changes"):
        check_host(model, criterion, lambda: criterion(model(torch.ones(1, 2)), torch.ones(1, 2)))


def quiet(self, x):
    return F.relu(self.layer(x)) * TEMPERATURE * settings.TEMPERATURE * OPTIONS.temperature + cached(3)


def test_names_that_stay_as_they_are_are_no_reason():
    model = model_of(quiet)
    model(torch.ones(1, 2))  # what is kept for later calls is kept
    check_host(model, lambda model, batch: model(batch).sum(), lambda: model(torch.ones(1, 2)))


def by_cache(self, x):
    return self.layer(x) * cached(COUNT)


def test_a_cache_that_meets_something_new_with_every_step_is_a_reason():
    """What it is asked for changes on the host, by whatever way."""
    model = model_of(by_cache)
    with pytest.raises(Refusal, match="cached keeps changes"):
        check_host(model, None, lambda: [cached(-1), model(torch.ones(1, 2))])
    watch = HostWatch(model, None)
    cached(-2)  # by somebody else, between steps
    assert watch.what_changed() is None


def test_what_only_other_methods_name_is_left_alone():
    """A method that no step calls may log and count what it likes."""
    model = model_of(quiet)
    watch = HostWatch(model, None)
    before = host_state(model, None)
    model.log()
    settings.UNRELATED += 1
    assert watch.what_changed() is None
    assert what_changed(before, host_state(model, None)) is None


def change_a_function():
    globals()["helper"] = lambda: None


BETWEEN = {
    "a global": (quiet, lambda: globals().update(TEMPERATURE=TEMPERATURE * 2)),
    "an attribute of a module": (quiet, lambda: setattr(settings, "TEMPERATURE", settings.TEMPERATURE * 2)),
    "an attribute of an object": (quiet, lambda: setattr(OPTIONS, "temperature", OPTIONS.temperature * 2)),
    "a list in an object": (quiet, lambda: OPTIONS.names.append("b")),
    "a list of a class": (by_class_list, lambda: Base.history.append(1)),
    "a number of a class": (by_method, lambda: setattr(Base, "steps", Base.steps + 1)),
    "an attribute of another model": (by_other_model, lambda: setattr(TEACHER, "extra", object())),
    "another model in training": (by_other_model, lambda: TEACHER.train(not TEACHER.training)),
    "a function": (by_helper, change_a_function),
}


@pytest.mark.parametrize(("forward", "change"), BETWEEN.values(), ids=BETWEEN)
def test_what_the_user_changes_between_steps_is_noticed(forward, change, monkeypatch):
    monkeypatch.setitem(globals(), "helper", helper)  # put back afterwards
    watch = HostWatch(model_of(forward), None)
    assert watch.what_changed() is None
    change()
    assert watch.what_changed() is not None


def test_a_global_that_a_loss_names_is_told_by_its_name(monkeypatch):
    watch = HostWatch(nn.Linear(2, 2), lambda model, batch: model(batch).sum() * TEMPERATURE)
    monkeypatch.setitem(globals(), "TEMPERATURE", -1.0)
    assert watch.what_changed() == "TEMPERATURE"


def test_the_same_name_in_two_files_is_two_names(monkeypatch):
    other = ModuleType("users_other")
    sys.modules["users_other"] = other
    exec("TEMPERATURE = 1.0\ndef warm(x):\n    return x * TEMPERATURE\n", vars(other))

    def loss_fn(model, batch):
        return other.warm(model(batch)).sum() * TEMPERATURE

    watch = HostWatch(nn.Linear(2, 2), loss_fn)
    other.TEMPERATURE = 2.0
    assert watch.what_changed().startswith("TEMPERATURE")
    other.TEMPERATURE = 1.0
    assert watch.what_changed() is None
    monkeypatch.setitem(globals(), "TEMPERATURE", 3.0)
    assert watch.what_changed().startswith("TEMPERATURE")


def test_code_of_libraries_is_not_read():
    names = NamedState(nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2)), nn.MSELoss())
    assert not names.named and not names.belongings


def test_functions_that_call_each_other_end():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert {named.label for named in NamedState(nn.Linear(1, 1), even).named} >= {"odd", "even"}


def test_a_name_that_does_not_exist_yet_is_no_error():
    def loss_fn(model, batch):
        return missing_at_first(batch)  # noqa: F821

    assert HostWatch(nn.Linear(1, 1), loss_fn).what_changed() is None
