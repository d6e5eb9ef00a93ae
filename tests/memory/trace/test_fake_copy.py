"""A model that exists is copied without its weights, and is left alone."""

import collections
import copy
import functools
import logging
import random
import weakref
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from brim.errors import BrimError
from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.trace.fake_copy import FakeCopy


def copied(value):
    with FakeTensorMode(allow_non_fake_inputs=True):
        return FakeCopy().of(value)


def batch(n: int):
    return (torch.randn(n, 8),), {}


def predict(model):
    return forecast(model, batch, batch_size=4, card=H200)


class State(NamedTuple):
    last: torch.Tensor


class Tricky(nn.Module):
    """Attributes of every kind, all of them changed in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.1))
        self.head = nn.Linear(8, 8, bias=False)
        self.head.weight = self.layer[0].weight
        self.calls, self.seen, self.by_name = 0, [], {"nested": {"list": []}}
        self.register_buffer("counter", torch.zeros((), dtype=torch.long))
        self.plain = torch.ones(8)

    def forward(self, x):
        self.calls += 1
        self.seen.append(x)
        self.by_name["nested"]["list"].append(x)
        self.by_name[self.calls] = x
        self.counter += 1
        self.plain.mul_(2)
        self.late = x
        return self.head(self.layer(x)) * self.plain


def snapshot(model: nn.Module):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hooks = [
        (len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks), module.training)
        for module in model.modules()
    ]
    grads = [parameter.grad for parameter in model.parameters()]
    return state, hooks, grads, set(vars(model))


def same(a, b) -> bool:
    return a[0].keys() == b[0].keys() and all(torch.equal(a[0][k], b[0][k]) for k in a[0]) and a[1:] == b[1:]


def test_the_model_is_left_as_it_was() -> None:
    model = Tricky().eval()
    model.layer[0].train()
    before = snapshot(model)
    predict(model)
    assert same(before, snapshot(model))
    assert (model.calls, model.seen, model.by_name) == (0, [], {"nested": {"list": []}})
    assert model.plain.tolist() == [1] * 8
    assert not any(isinstance(p, FakeTensor) for p in [*model.parameters(), *model.buffers()])


def test_the_model_is_left_as_it_was_when_the_forecast_fails() -> None:
    class Failing(Tricky):
        def forward(self, x):
            super().forward(x)
            raise RuntimeError("on purpose")

    model = Failing()
    before = snapshot(model)
    with pytest.raises(BrimError, match="on purpose"):
        predict(model)
    assert same(before, snapshot(model))


def test_the_model_trains_afterwards_as_if_nothing_had_been() -> None:
    torch.manual_seed(0)
    model = Tricky()
    untouched = copy.deepcopy(model)
    predict(model)
    for one in (model, untouched):
        torch.manual_seed(1)
        one(torch.randn(4, 8)).sum().backward()
    for one, other in zip(model.parameters(), untouched.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_everything_that_is_a_tensor_is_fake_and_as_large() -> None:
    model = Tricky()
    fake = copied(model)
    pairs = zip([*model.parameters(), *model.buffers()], [*fake.parameters(), *fake.buffers()], strict=True)
    for real, other in [*pairs, (model.plain, fake.plain)]:
        assert isinstance(other, FakeTensor)
        assert isinstance(other, nn.Parameter) == isinstance(real, nn.Parameter)
        assert (other.shape, other.dtype, other.requires_grad) == (real.shape, real.dtype, real.requires_grad)


def test_shared_weights_stay_shared() -> None:
    fake = copied(Tricky())
    assert fake.head.weight is fake.layer[0].weight


def test_shared_modules_stay_shared() -> None:
    block = nn.Linear(8, 8)
    fake = copied(nn.Sequential(block, nn.ReLU(), block))
    assert fake[0] is fake[2]
    assert fake[0] is not block


def test_strides_are_kept() -> None:
    transposed, expanded = torch.randn(3, 5).t(), torch.randn(1, 5).expand(3, 5)
    assert copied(transposed).stride() == transposed.stride()
    assert copied(expanded).stride() == expanded.stride()


def test_recurrent_layers_point_at_their_new_weights() -> None:
    fake = copied(nn.LSTM(8, 8))
    assert all(ref() is weight for ref, weight in zip(fake._flat_weight_refs, fake._flat_weights, strict=True))
    assert fake._flat_weights[0] is fake.weight_ih_l0


def test_a_weak_reference_to_something_else_is_shared() -> None:
    thing = nn.Linear(1, 1)
    reference = weakref.ref(thing)
    assert copied([reference])[0] is reference


def test_whole_numbers_keep_their_values() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        copier = FakeCopy()
        copier.of(nn.ModuleDict({"norm": nn.BatchNorm1d(3)}))
    assert [value.dtype for _, value in copier.values] == [torch.long]


def test_a_mask_in_a_buffer_picks_what_it_marks() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("mask", torch.tensor([True, False] * 4))

        def forward(self, x):
            picked = self.layer(x)[:, self.mask]
            assert picked.shape[1] == 4
            return picked

    assert predict(Masked()).notes == ()


def test_hooks_of_the_user_run_on_the_copy() -> None:
    model, shapes = nn.Linear(8, 3), []
    model.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
    predict(model)
    assert set(shapes) == {(4, 3)}


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_parametrized_layers_are_copied(wrap) -> None:
    assert predict(wrap(nn.Linear(8, 8))).allocated == predict(lambda: wrap(nn.Linear(8, 8))).allocated


# -- what goes wrong ---------------------------------------------------------------------------------------------------


class Calling(nn.Module):
    """Chooses in its constructor how it computes, as many do."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.compute = {"method": self.plainly, "closure": lambda x: self.layer(x)}[how]

    def plainly(self, x):
        return self.layer(x)

    def forward(self, x):
        return self.compute(x)


@pytest.mark.parametrize("how", ["method", "closure"])
def test_a_module_that_keeps_its_own_methods_is_left_alone(how: str) -> None:
    model = Calling(how)
    found = predict(model)
    assert model.layer.weight.grad is None
    assert found.parts == predict(lambda: Calling(how)).parts


def test_a_compiled_module_is_left_alone() -> None:
    inner = nn.Linear(8, 8)
    found = predict(torch.compile(inner, backend="eager"))
    assert inner.weight.grad is None
    assert found.parts == predict(nn.Linear(8, 8)).parts
    assert found.notes == ("torch.compile was left out: the forecast is that of the model without it",)
    built = predict(lambda: torch.compile(nn.Linear(8, 8), backend="eager"))
    assert (built.parts, built.notes) == (found.parts, found.notes)


def test_a_defaultdict_still_has_defaults() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.counts = collections.defaultdict(int)

        def forward(self, x):
            self.counts["calls"] += 1
            return self.layer(x)

    model = Counting()
    predict(model)
    assert not model.counts


def test_a_deque_is_left_alone() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.last = collections.deque(maxlen=2)

        def forward(self, x):
            self.last.append(x)
            return self.layer(x)

    model = Remembering()
    predict(model)
    assert not model.last


class Meter:
    """A plain object of the user: it counts, draws, and may know the model."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.count, self.recent, self.model = 0, torch.zeros(8), model
        self.draws = random.Random(1), np.random.default_rng(1)
        self.hits = np.zeros(3)

    def see(self, x):
        self.count += 1
        self.recent = x.detach().mean(0)
        self.hits[self.draws[1].integers(3)] += self.draws[0].random()
        return x if self.model is None else self.model.layer(x)


class Metered(nn.Module):
    def __init__(self, knows: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.meter = Meter(self if knows else None)

    def forward(self, x):
        return self.layer(self.meter.see(x))


@pytest.mark.parametrize("knows", [True, False])
def test_objects_of_the_user_are_left_alone(knows: bool) -> None:
    model = Metered(knows)
    predict(model)
    meter, new = model.meter, Meter()
    assert (meter.count, meter.hits.tolist()) == (0, [0, 0, 0])
    assert not isinstance(meter.recent, FakeTensor)
    assert [meter.draws[0].random(), meter.draws[1].random()] == [new.draws[0].random(), new.draws[1].random()]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_an_object_does_with_the_model_is_counted() -> None:
    assert predict(Metered(knows=True)).parts == predict(lambda: Metered(knows=True)).parts


def test_a_configuration_of_transformers_is_left_alone() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=50, **sizes))

    def texts(n: int):
        return (), {"input_ids": torch.ones(n, 8, dtype=torch.long), "labels": torch.zeros(n, dtype=torch.long)}

    forecast(model, texts, batch_size=2, card=H200)
    assert model.config.problem_type is None
    assert copied(model).config is not model.config


def test_a_weak_reference_to_the_model_is_one_to_its_copy() -> None:
    model = nn.Linear(8, 8)
    model.whole = weakref.ref(model)
    fake = copied(model)
    assert fake.whole() is fake


def test_an_optimizer_in_the_model_steps_on_the_copy() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.aside = nn.Linear(8, 8), nn.Linear(8, 1)
            self.state = State(torch.zeros(8))
            self.optimizer = torch.optim.Adam(self.aside.parameters())

        def forward(self, x):
            self.state.last.add_(1)
            self.optimizer.zero_grad()
            self.aside(x).mean().backward()
            self.optimizer.step()
            return self.layer(x)

    model = Steps()
    model.aside.weight.grad = torch.ones(1, 8)
    predict(model)
    assert torch.equal(model.aside.weight.grad, torch.ones(1, 8))
    assert len(model.optimizer.state) == 0
    assert torch.equal(model.state.last, torch.zeros(8))


def test_an_object_of_a_library_is_shared() -> None:
    library = functools.partial(int), logging.getLogger("of the user"), torch.device("cpu")
    assert all(new is old for new, old in zip(copied(list(library)), library, strict=True))


def test_a_model_on_meta_is_forecast() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    predict(model)
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("keep", [list, tuple, dict])
def test_functions_that_know_modules_know_the_copies(keep) -> None:
    class Chained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(8, 8), nn.Linear(8, 8)]
            kept = dict(enumerate(layers)) if keep is dict else keep(layers)
            self.layers = nn.ModuleList(layers)
            self.first = functools.partial(nn.Linear.forward, layers[0])
            self.second = lambda x: kept[1](x)

        def forward(self, x):
            return self.second(self.first(x))

    model = Chained()
    found = predict(model)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert found.parts == predict(Chained).parts


def test_functions_that_know_no_module_are_shared() -> None:
    total: list = []
    functions = [total.append, lambda x: total.append(x), functools.partial(total.append, 1), len]
    assert all(new is old for new, old in zip(copied(functions), functions, strict=True))


def test_a_module_that_was_compiled_in_place_is_left_alone() -> None:
    model = nn.Linear(8, 8)
    model.compile(backend="eager")
    assert predict(model).parts == predict(nn.Linear(8, 8)).parts
    assert model.weight.grad is None


def test_a_hook_that_is_taken_off_the_copy_stays_on_the_model() -> None:
    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.handle = self.register_forward_hook(lambda module, args, output: module.handle.remove())

        def forward(self, x):
            return self.layer(x)

    model = Once()
    predict(model)
    assert len(model._forward_hooks) == 1


def test_a_list_of_itself_is_copied() -> None:
    ring: list = [1]
    ring.append(ring)
    fake = copied(ring)
    assert fake[1] is fake
    assert fake is not ring


@pytest.mark.parametrize("handed_out", [False, True])
def test_a_lazy_model_is_left_without_shapes(handed_out: bool) -> None:
    model = nn.LazyLinear(8)
    assert predict((lambda: model) if handed_out else model).parts == predict(nn.Linear(8, 8)).parts
    assert model.has_uninitialized_params()
    assert len(model._forward_pre_hooks) == 1
    assert model(torch.randn(2, 5)).shape == (2, 8)
