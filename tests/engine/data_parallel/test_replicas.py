"""Copies of a model: they compute with weights of their own, and the model gets their gradients."""

from types import MethodType

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel

from brim.engine.data_parallel.replicas import add_up, why_not_replicable
from brim.engine.oom.activation_checkpointing import Checkpointing

CPU = torch.device("cpu")


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


class Listed(nn.Module):
    """Weights of every sort that torch stores apart: normed ones, lists of them."""

    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.scales = nn.ParameterList([torch.ones(4), torch.ones(4)])

    def forward(self, x):
        return self.layer(x) * self.scales[0] * self.scales[1]


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 4)),
        Listed,
        lambda: nn.LSTM(4, 4, num_layers=2, batch_first=True),
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0, batch_first=True),
    ],
    ids=["layers", "listed", "lstm", "transformer"],
)
def test_the_gradients_of_all_copies_add_up_in_the_model(build, copies_of):
    torch.manual_seed(0)
    model, x = build(), torch.randn(6, 3, 4)
    squares(model(x)).backward()
    whole = gradients(model)
    model.zero_grad()
    sum(squares(copy(part)) for copy, part in zip(copies_of(model).models, x.split(2), strict=True)).backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, whole[name], rtol=1e-5, atol=1e-6)


def squares(output):
    return (output[0] if isinstance(output, tuple) else output).square().sum()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.one, self.other, self.unused = (nn.Linear(2, 2) for _ in range(4))
        self.other.bias.requires_grad_(False)
        self.tied = self.body.weight

    def forward(self, x, head):
        return (self.one if head == 1 else self.other)(self.body(x)).sum() + self.tied.square().sum()


def test_a_weight_that_no_copy_used_has_no_gradient_and_one_that_some_used_has_theirs(copies_of):
    torch.manual_seed(0)
    model, x = TwoHeads(), torch.randn(3, 2)
    heads = [1, 2, 1]
    sum(model(x, head) for head in heads).backward()
    plain = gradients(model)
    model.zero_grad()
    sum(copy(x, head) for copy, head in zip(copies_of(model).models, heads, strict=True)).backward()
    for name, gradient in gradients(model).items():
        assert (gradient is None) == (plain[name] is None), name
        assert gradient is None or torch.allclose(gradient, plain[name]), name
    assert model.unused.weight.grad is None
    assert model.other.bias.grad is None


def test_sparse_gradients_stay_sparse(copies_of):
    model = nn.Embedding(5, 2, sparse=True)
    sum(copy(torch.tensor([1, 3])).sum() for copy in copies_of(model, 2).models).backward()
    assert model.weight.grad.is_sparse
    assert model.weight.grad.to_dense()[:, 0].tolist() == [0, 2, 0, 2, 0]


def test_copies_have_parameters_as_the_model_has(copies_of):
    model = TwoHeads()
    for copy in copies_of(model).models:
        named, own = dict(copy.named_parameters()), dict(model.named_parameters())
        assert list(named) == list(own)
        assert all(named[name].requires_grad == own[name].requires_grad for name in own)
        assert copy.tied is copy.body.weight
        assert copy.body.weight is not model.body.weight
        assert copy.state_dict().keys() == model.state_dict().keys()
    assert all(type(p) is nn.Parameter and p.is_leaf for p in model.parameters())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_copies_only_compute(mode, copies_of):
    model, x = nn.LSTM(3, 4), torch.randn(2, 5, 3)
    with mode():
        for copy in copies_of(model).models:
            assert torch.equal(copy(x)[0], model(x)[0])
            assert len(list(copy.parameters())) == 4
    assert model(x)[0].requires_grad


def test_methods_put_on_a_module_belong_to_the_copy(copies_of):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(2)))
    Checkpointing(model).apply()
    model.owner = MethodType(lambda self: self, model[0])
    for copy in copies_of(model).models:
        assert copy[1].forward.__self__ is copy[1]
        assert copy.owner() is copy[0]
    assert model[1].forward.__self__ is model[1]
    assert model.owner() is model[0]


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("table", None)
        self.calls, self.history = 0, []

    def forward(self, x):
        self.seen += 1
        if self.table is None:
            self.table = torch.full((), x.item())
        self.calls += 1
        self.history.append(1)
        return x


def test_buffers_of_the_first_copy_are_kept_and_other_state_is_named(copies_of):
    model = Remembers()
    copies = copies_of(model, notes=True)
    for number, copy in enumerate(copies.models):
        copy(torch.tensor(float(number)))
    copies.keep_buffers()
    assert (model.seen.item(), model.table.item(), model.calls) == (1, 0, 0)
    assert copies.lost_state() == ["Remembers.calls"]
    assert copies_of(model).models[2].table.item() == 0  # and sent to all from then on


class OwnLSTM(nn.LSTM):
    pass


def test_what_torchs_modules_keep_for_themselves_is_not_named(copies_of):
    model = OwnLSTM(3, 4)
    copies = copies_of(model, notes=True)
    for copy in copies.models:
        copy(torch.randn(2, 5, 3))
    assert copies.lost_state() == []


def test_gradients_are_added_only_where_there_are_any():
    one, two = torch.ones(2), torch.full((2,), 2.0)
    added = add_up([[one, None, None], [two, None, two]], CPU)
    assert [None if total is None else total.tolist() for total in added] == [[3.0, 3.0], None, [2.0, 2.0]]


def test_what_cannot_be_copied_is_said():
    def reason(model):
        return why_not_replicable(model, CPU)

    scripted = torch.jit.script(nn.Linear(2, 2))
    compiled = nn.Linear(2, 2)
    compiled.compile(backend="eager")
    apart = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    assert "0 is a ScriptModule" in reason(nn.Sequential(scripted))
    assert "compiled" in reason(compiled)
    assert "compiled" in reason(torch.compile(nn.Linear(2, 2), backend="eager"))
    assert "hand over its .module" in reason(DataParallel(nn.Linear(2, 2)))
    assert "no shape yet" in reason(nn.LazyLinear(2))
    assert "1.weight is on meta" in reason(apart)
    assert reason(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.LSTM(2, 2))) is None
