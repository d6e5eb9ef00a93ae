"""What a model or a loss keeps, draws or hooks in Python is noticed, wherever it is; what stays as it is, is not."""

import functools
import itertools
import random
from collections import OrderedDict, deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from brim.engine.captured.host.host_state import MOST_ITEMS, check_hooks, host_state, what_changed
from brim.engine.captured.host.host_watch import check_host
from brim.engine.captured.report import Refusal

COUNTER = 0
COUNTS = {"steps": 0}


class Holder(nn.Module):
    """A model that keeps one thing."""

    def __init__(self, kept=None):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.kept = kept


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, *_):
        self.calls += 1


class Slots:
    __slots__ = ("steps",)

    def __init__(self):
        self.steps = 0

    def count(self):
        self.steps += 1


def changes(model, change, loss_fn=None):
    """What is noticed of ``change``."""
    before = host_state(model, loss_fn)
    change()
    return what_changed(before, host_state(model, loss_fn))


SET = {
    "a number": (1, 2),
    "a fraction": (1.0, 1.5),
    "a flag": (False, True),
    "a text": ("a", "b"),
    "bytes": (b"a", b"b"),
    "something for nothing": (None, 0),
    "a type of numbers": (torch.float32, torch.float16),
    "a device": (torch.device("cpu"), torch.device("meta")),
    "not a number any more": (float("nan"), 0.0),
    "another length": ([1], [1, 1]),
    "another item": ((1, 2), (1, 3)),
    "another value": ({"a": 1}, {"a": 2}),
    "another key": ({"a": 1}, {"b": 1}),
    "another size of a set": ({1}, {1, 2}),
    "another shape": (torch.zeros(4)[:2], torch.zeros(4)[:3]),
    "another function": (len, max),
    "another class": (int, float),
    "a list in a list": ([[1]], [[2]]),
    "a list in a dictionary": ({"a": [1]}, {"a": [2]}),
    "in an object": (SimpleNamespace(n=1), SimpleNamespace(n=2)),
    "in a list in an object": (SimpleNamespace(n=[1]), SimpleNamespace(n=[2])),
    "in a number of numpy's": (np.float64(1), np.float64(2)),
}


@pytest.mark.parametrize(("one", "two"), SET.values(), ids=SET)
def test_another_value_is_noticed_by_its_name(one, two):
    model = nn.Sequential(nn.Linear(2, 2), Holder(one))
    assert changes(model, lambda: setattr(model[1], "kept", two)).startswith("1.kept")


@pytest.mark.parametrize("value", [pair[0] for pair in SET.values()], ids=SET)
def test_what_stays_as_it_is_is_not_a_change(value):
    model = Holder(value)
    assert changes(model, lambda: model.layer(torch.zeros(1, 2))) is None


def test_nothing_is_a_change_while_only_values_on_the_device_move():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()

    assert changes(model, step) is None


IN_PLACE = {
    "appended": ([], lambda kept: kept.append(1)),
    "counted in a dictionary": ({"n": 0}, lambda kept: kept.update(n=1)),
    "counted in an object": (SimpleNamespace(n=0), lambda kept: setattr(kept, "n", 1)),
    "new in an object": (SimpleNamespace(), lambda kept: setattr(kept, "n", 1)),
    "added to a set": (set(), lambda kept: kept.add(1)),
    "taken from an ordered dictionary": (OrderedDict(a=1), lambda kept: kept.clear()),
}


@pytest.mark.parametrize(("kept", "change"), IN_PLACE.values(), ids=IN_PLACE)
def test_what_changes_in_place_is_noticed(kept, change):
    assert changes(Holder(kept), lambda: change(kept)).startswith("Holder.kept")


UNSEEN = {
    "a number of numpy's": (np.int64(1), lambda model: setattr(model, "kept", np.int64(2))),
    "an array": (np.zeros(2), lambda model: model.kept.fill(1)),
    "a queue": (deque(), lambda model: model.kept.append(1)),
    "a complex number": (1j, lambda model: setattr(model, "kept", 2j)),
    "in slots": (Slots(), lambda model: model.kept.count()),
    "another item of a set": ({1}, lambda model: setattr(model, "kept", {2})),
    "bytes that are written to": (bytearray(b"a"), lambda model: model.kept.__setitem__(0, 0)),
    "an endless count": (itertools.count(), lambda model: next(model.kept)),
    "a generator of numpy's": (np.random.default_rng(0), lambda model: model.kept.random()),
    "a generator of torch's": (torch.Generator(), lambda model: torch.rand(1, generator=model.kept)),
    "a generator of Python's": (random.Random(0), lambda model: model.kept.random()),
}


@pytest.mark.parametrize(("kept", "change"), UNSEEN.values(), ids=UNSEEN)
def test_rarer_things_that_change_are_noticed(kept, change):
    model = Holder(kept)
    assert changes(model, lambda: change(model)) is not None


def test_new_and_lost_attributes_are_noticed():
    model = Holder()
    assert changes(model, lambda: setattr(model, "more", 1)) == "Holder.more"
    assert changes(model, lambda: delattr(model, "more")) == "Holder.more"


def test_modes_of_layers_are_noticed():
    model = nn.Sequential(nn.Dropout(0.1))
    assert changes(model, lambda: setattr(model[0], "p", 0.2)) == "0.p"
    assert changes(model, model.eval) == "Sequential.training"


def test_weights_and_buffers_that_are_put_elsewhere_are_noticed():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = [p.data for p in model.parameters()]  # kept, so that its memory is not given out again
    assert changes(model, lambda: setattr(model[0].weight, "data", before[0].clone())) == "0.weight (parameter)"
    old = model[1].running_mean
    assert changes(model, lambda: setattr(model[1], "running_mean", old.clone())) == "1.running_mean (buffer)"
    assert changes(model, lambda: setattr(model[0], "bias", None)) == "0.bias (parameter)"


def test_a_tensor_that_is_made_anew_is_noticed_and_one_that_is_written_to_is_not():
    old = torch.zeros(3)
    model = Holder(old)
    assert changes(model, lambda: model.kept.add_(1)) is None
    assert changes(model, lambda: setattr(model, "kept", old + 1)) == "Holder.kept"


def test_large_containers_are_looked_at_as_far_as_their_length_and_first_items():
    kept = [0] * (10 * MOST_ITEMS)
    model = Holder(kept)
    assert len(host_state(model, None)) < 5 * MOST_ITEMS
    assert changes(model, lambda: kept.__setitem__(MOST_ITEMS - 1, 1)) == f"Holder.kept[{MOST_ITEMS - 1}]"
    assert changes(model, lambda: kept.append(1)) == "Holder.kept"


def test_a_container_that_holds_itself_ends():
    kept: list[object] = []
    kept.append(kept)
    assert changes(Holder(kept), lambda: None) is None


def test_a_loss_module_is_looked_at():
    loss_fn = Counting()
    assert "calls" in changes(Holder(), loss_fn, loss_fn)


def test_a_module_within_a_loss_module_is_looked_at():
    loss_fn = nn.Sequential(Counting())
    assert changes(Holder(), loss_fn[0], loss_fn) is not None


def test_attributes_of_a_callable_loss_are_looked_at():
    class Loss:
        steps = 0

        def __call__(self):
            self.steps = self.steps + 1

    loss_fn = Loss()
    assert changes(Holder(), loss_fn, loss_fn) == "loss_fn.steps"


def test_attributes_of_a_function_are_looked_at():
    def loss_fn():
        loss_fn.steps = 1

    assert changes(Holder(), loss_fn, loss_fn) == "loss_fn.steps"


def test_what_a_loss_closes_over_is_looked_at():
    steps, seen = 0, []

    def counts():
        nonlocal steps
        steps += 1

    def remembers():
        seen.append(1)

    assert changes(Holder(), counts, counts) == "steps"
    assert changes(Holder(), remembers, remembers).startswith("seen")


def test_a_loss_that_closes_over_what_is_not_there_yet_is_looked_at():
    def loss_fn():
        return later

    assert changes(Holder(), lambda: None, loss_fn) is None
    later = 1
    assert loss_fn() == 1


def counts_in_a_global():
    global COUNTER
    COUNTER += 1


def counts_in_a_dictionary():
    COUNTS["steps"] += 1


@pytest.mark.parametrize(
    ("loss_fn", "name"), [(counts_in_a_global, "COUNTER"), (counts_in_a_dictionary, "COUNTS['steps']")]
)
def test_globals_that_a_loss_names_are_looked_at(loss_fn, name):
    assert changes(Holder(), loss_fn, loss_fn) == name


def test_a_loss_that_keeps_nothing_changes_nothing():
    def loss_fn(model, batch):
        return torch.nn.functional.mse_loss(model(batch), batch)

    model = Holder()
    assert changes(model, lambda: loss_fn(model.layer, torch.zeros(1, 2)), loss_fn) is None


class Task:
    def __init__(self):
        self.steps = 0

    def loss(self, *_):
        self.steps += 1


def test_the_object_of_a_method_is_looked_at():
    loss_fn = Task().loss
    assert changes(Holder(), loss_fn, loss_fn) is not None


def adds(counts):
    counts["n"] = counts.get("n", 0) + 1


def test_what_a_partial_is_bound_to_is_looked_at():
    loss_fn = functools.partial(adds, {})
    assert changes(Holder(), loss_fn, loss_fn) is not None


class CountsInItsClass(Holder):
    calls = 0

    def forward(self):
        type(self).calls += 1


class CountsInAGlobal(Holder):
    def forward(self):
        counts_in_a_global()


def test_a_count_in_the_class_of_a_model_is_noticed():
    model = CountsInItsClass()
    assert changes(model, model) is not None


def test_a_count_in_a_global_is_noticed():
    model = CountsInAGlobal()
    assert changes(model, model) is not None


def test_the_result_of_steps_that_change_nothing_is_handed_on():
    assert check_host(Holder(), None, lambda: 5) == 5


def test_steps_that_count_are_refused_with_the_name_of_the_count():
    model = nn.Sequential(Counting())
    with pytest.raises(Refusal, match=r"^0\.calls changes with every step"):
        check_host(model, None, lambda: model(1))


DRAWS = {
    "torch": lambda: torch.rand(1),
    "python": random.random,
    "a normal number of python's": lambda: random.gauss(0, 1),
    "numpy": np.random.rand,
    "a normal number of numpy's": np.random.randn,
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_random_numbers_of_the_host_are_refused(draw):
    with pytest.raises(Refusal, match="draws random numbers on the host"):
        check_host(Holder(), None, draw)


def test_the_second_normal_number_of_a_pair_is_a_draw_too():
    """numpy draws two at a time and keeps one: the words of its generator stay."""
    np.random.seed(0)
    np.random.randn()
    with pytest.raises(Refusal, match="random numbers"):
        check_host(Holder(), None, np.random.randn)


def user_hook(*_):
    pass


class HookObject:
    def __call__(self, *_):
        pass


REGISTER = {
    "forward": lambda module, hook: module.register_forward_hook(hook),
    "before forward": lambda module, hook: module.register_forward_pre_hook(hook),
    "backward": lambda module, hook: module.register_full_backward_hook(hook),
    "before backward": lambda module, hook: module.register_full_backward_pre_hook(hook),
}


@pytest.mark.parametrize("register", REGISTER.values(), ids=REGISTER)
@pytest.mark.parametrize(
    ("hook", "called"),
    [(user_hook, "user_hook"), (HookObject(), "HookObject"), (functools.partial(user_hook), "partial")],
    ids=["function", "object", "partial"],
)
def test_hooks_of_users_are_refused_by_name_until_they_are_taken_away(register, hook, called):
    model = nn.Sequential(nn.Linear(2, 2))
    handle = register(model[0], hook)
    with pytest.raises(Refusal, match=rf"^0 has a hook \({called}\)"):
        check_hooks(model)
    handle.remove()
    check_hooks(model)


@pytest.mark.parametrize("register", REGISTER.values(), ids=REGISTER)
@pytest.mark.parametrize("package", ["torch.nn.utils.spectral_norm", "peft.tuners", "transformers.modeling"])
def test_hooks_of_known_packages_are_trusted(register, package):
    def hook(*_):
        pass

    hook.__module__ = package
    model = nn.Linear(2, 2)
    register(model, hook)
    check_hooks(model)
    hook.__module__ = "mine"
    with pytest.raises(Refusal):
        check_hooks(model)


def test_hooks_of_packages_with_similar_names_are_not_trusted():
    def hook(*_):
        pass

    hook.__module__ = "torchmetrics.wrappers"
    model = nn.Linear(2, 2)
    model.register_forward_hook(hook)
    with pytest.raises(Refusal):
        check_hooks(model)


def test_the_hooks_of_spectral_norm_are_trusted():
    model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(2, 2)))
    check_hooks(model)
    model[0].register_forward_pre_hook(user_hook)  # one of the user's beside them is not
    with pytest.raises(Refusal):
        check_hooks(model)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_gradients_are_refused_until_they_are_taken_away(kind):
    model = nn.Sequential(nn.Linear(2, 2))
    handle = getattr(model[0].weight, kind)(user_hook)
    with pytest.raises(Refusal, match=r"^0\.weight has a hook on its gradient"):
        check_hooks(model)
    handle.remove()
    check_hooks(model)


def test_a_count_of_an_object_is_seen_where_its_class_has_one_of_the_same_name():
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    model = Counting(3, 1)
    with pytest.raises(Refusal, match="calls"):
        check_host(model, None, lambda: model(torch.zeros(2, 3)))
