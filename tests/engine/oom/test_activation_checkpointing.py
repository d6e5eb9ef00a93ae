"""Computed again in the backward pass, and nothing else changes."""

import copy
import pickle
import random

import numpy
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from brim.engine.oom.activation_checkpointing import Checkpointing

COMPUTED: dict[nn.Module, int] = {}  # not on the block: what a block counts itself is not moved by the second pass


class Block(nn.Module):
    """How often it computes is counted."""

    def __init__(self, dropout=0.3, norm=False):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(dropout)
        self.norm = nn.BatchNorm1d(4) if norm else nn.Identity()
        self.seen = 0

    @property
    def calls(self):
        return COMPUTED.get(self, 0)

    def forward(self, x, scale=1.0):
        COMPUTED[self] = self.calls + 1
        self.seen += 1
        return x + self.dropout(self.norm(self.linear(x)).tanh()) * scale


def net(**settings):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(*(Block(**settings) for _ in range(3))), nn.Linear(4, 1))


def gradients(model, data=None):
    data = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)) if data is None else data
    torch.manual_seed(2)
    loss = model(data).square().mean() if not isinstance(model, GPT2LMHeadModel) else model(data, labels=data).loss
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()]), torch.rand(1)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_are_the_same_to_the_bit_and_so_are_later_random_numbers(dropout):
    plain, checkpointed = net(dropout=dropout), net(dropout=dropout)
    Checkpointing(checkpointed).apply()
    for a, b in zip(gradients(plain), gradients(checkpointed), strict=True):
        assert torch.equal(a, b)
    assert [block.calls for block in plain[1]] == [1, 1, 1]
    assert [block.calls for block in checkpointed[1]] == [2, 2, 2]
    assert [block.seen for block in checkpointed[1]] == [1, 1, 1]


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_gpt2_of_hugging_face_trains_the_same(use_cache):
    def build():
        torch.manual_seed(0)
        sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 30, "n_positions": 8}
        return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, use_cache=use_cache)).train()

    plain, checkpointed = build(), build()
    blocks = Checkpointing(checkpointed)
    blocks.apply()
    assert len(blocks.blocks) == 2
    tokens = torch.randint(0, 30, (3, 8))
    assert torch.equal(gradients(plain, tokens)[0], gradients(checkpointed, tokens)[0])


def test_a_transformer_of_torch_trains_the_same():
    def build():
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
        return nn.Sequential(nn.Linear(3, 4), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))

    plain, checkpointed = build(), build()
    blocks = Checkpointing(checkpointed)
    blocks.apply()
    assert len(blocks.blocks) == 2
    data = torch.randn(2, 5, 3)
    assert torch.equal(gradients(plain, data)[0], gradients(checkpointed, data)[0])


def test_names_of_weights_stay():
    model = net()
    before = list(model.state_dict())
    Checkpointing(model).apply()
    assert list(model.state_dict()) == before


def test_without_gradients_nothing_is_computed_again():
    model = net()
    Checkpointing(model).apply()
    model.eval()
    with torch.no_grad():
        model(torch.ones(2, 3))
    assert [block.calls for block in model[1]] == [1, 1, 1]


def test_arguments_by_name_reach_the_block():
    model = nn.ModuleList([Block(0.0), Block(0.0)])
    x = torch.ones(2, 4)
    plain = model[0](x, scale=3.0)
    Checkpointing(model).apply()
    assert torch.equal(model[0](x, scale=3.0), plain)


def test_removed_it_is_gone():
    model = net()
    blocks = Checkpointing(model)
    blocks.apply()
    blocks.remove()
    assert not blocks.is_on
    gradients(model)
    assert [block.calls for block in model[1]] == [1, 1, 1]


def test_a_block_that_is_shared_is_wrapped_once():
    shared = Block()
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(shared, shared), nn.Linear(4, 1))
    blocks = Checkpointing(model)
    blocks.apply()
    gradients(model)
    assert shared.calls == 4
    blocks.remove()


def test_batch_norm_sees_every_batch_once():
    plain, checkpointed = net(norm=True), net(norm=True)
    Checkpointing(checkpointed).apply()
    gradients(plain), gradients(checkpointed)
    assert all(torch.equal(a, b) for a, b in zip(plain.buffers(), checkpointed.buffers(), strict=True))


def test_a_copy_of_the_model_computes_with_its_own_weights():
    model = net(dropout=0.0)
    Checkpointing(model).apply()
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other[1].parameters():
            parameter.zero_()
    assert not torch.equal(other(torch.ones(2, 3)), model(torch.ones(2, 3)))


def test_the_model_can_still_be_pickled():
    model = net()
    Checkpointing(model).apply()
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.eval()(torch.ones(2, 3)), model.eval()(torch.ones(2, 3)))


def test_a_second_run_with_the_same_model_computes_no_more_than_twice():
    model = net()
    for _ in range(2):
        Checkpointing(model).apply()
    gradients(model)
    assert [block.calls for block in model[1]] == [2, 2, 2]


def test_a_forward_of_the_users_own_comes_back():
    model = net()
    block, called = model[1][0], []
    own = block.forward
    block.forward = lambda x: called.append(1) or own(x)
    blocks = Checkpointing(model)
    blocks.apply()
    blocks.remove()
    model(torch.ones(2, 3))
    assert called


def test_blocks_that_draw_from_python_and_numpy_are_computed_again_alike():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return x + self.inner(x) * numpy.random.rand() if random.random() < 0.5 else x.tanh() * 2

    def gradients(on):
        torch.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        model = nn.Sequential(*(Dropped() for _ in range(6)))
        if on:
            Checkpointing(model).apply()
        x = torch.ones(2, 4, requires_grad=True)
        model(x).sum().backward()
        return x.grad

    assert torch.equal(gradients(False), gradients(True))


class MovingMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.norms = []

    def forward(self, x):
        x = self.linear(x)
        self.mean.lerp_(x.detach().mean(0), 0.1)
        self.norms.append(float(self.mean.norm()))
        return torch.tanh(x - self.mean)


class Replaced(MovingMean):
    """Sets its buffer anew instead of changing it, and not through any counted way."""

    def forward(self, x):
        x = self.linear(x)
        self.mean = torch.lerp(self.mean, x.detach().mean(0), 0.1)
        self.mean.data.mul_(1.01)
        return torch.tanh(x - self.mean)


class Teacher(nn.Module):
    """A momentum encoder: frozen parameters that follow the trained ones."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        for mine, other in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            mine.data.lerp_(other.data, 0.3)
        return torch.tanh(self.student(x) - self.teacher(x))


class Instance(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.InstanceNorm1d(1, track_running_stats=True)

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x)[:, None])[:, 0])


def spectral():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Tanh())


@pytest.mark.parametrize("block", [MovingMean, Replaced, Teacher, Instance, spectral])
def test_state_that_a_block_moves_is_moved_once_and_the_bits_are_those_of_one_pass(block):
    def trained(is_on):
        torch.manual_seed(0)
        model = nn.Sequential(*(block() for _ in range(3)), nn.Linear(4, 1))
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        if is_on:
            Checkpointing(model).apply()
        for step in range(6):
            x = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model

    plain, checkpointed = trained(False), trained(True)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, checkpointed.state_dict()[name]), name
    if block is MovingMean:
        assert [one.norms for one in plain[:3]] == [one.norms for one in checkpointed[:3]]


@pytest.mark.parametrize("kind", ["list", "cache"])
def test_objects_that_blocks_fill_are_filled_once(kind):
    class Cache:
        def __init__(self):
            self.keys, self.length = [], 0

    class Filling(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, held):
            keys = held if kind == "list" else held.keys
            keys.append(self.linear(x))
            if kind == "cache":
                held.length += 1
            return torch.tanh(torch.cat(keys, 1)[:, -4:] * len(keys))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Filling() for _ in range(3))

        def forward(self, x):
            held = [] if kind == "list" else Cache()
            for block in self.blocks:
                x = block(x, held)
            return x

    found = []
    for is_on in (False, True):
        torch.manual_seed(0)
        model = Net()
        if is_on:
            Checkpointing(model).apply()
        model(torch.ones(2, 4)).sum().backward()
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_an_encoder_decoder_with_a_cache_is_the_same_to_the_bit():
    from transformers import T5Config, T5ForConditionalGeneration

    ids = torch.randint(3, 50, (4, 7), generator=torch.Generator().manual_seed(0))
    found = []
    for is_on in (False, True):
        torch.manual_seed(0)
        config = T5Config(
            vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0,
            decoder_start_token_id=0, pad_token_id=0,
        )  # fmt: skip
        model = T5ForConditionalGeneration(config).train()
        if is_on:
            Checkpointing(model).apply()
        model(input_ids=ids, labels=ids).loss.backward()
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_an_object_that_blocks_share_is_moved_once():
    class Shared:
        def __init__(self):
            self.calls, self.seen = 0, [0]

    class Counting(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.linear, self.shared = nn.Linear(4, 4), shared

        def forward(self, x):
            self.shared.calls += 1
            self.shared.seen[0] += 1
            return torch.tanh(self.linear(x) * (1 + 0.1 * self.shared.calls))

    found = []
    for is_on in (False, True):
        torch.manual_seed(0)
        shared = Shared()
        model = nn.Sequential(*(Counting(shared) for _ in range(3)))
        if is_on:
            Checkpointing(model).apply()
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
        found.append([p.grad for p in model.parameters()])
        assert (shared.calls, shared.seen) == (6, [6])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


class Noisy(nn.Module):
    """Draws from a generator of its own."""

    def __init__(self, made):
        super().__init__()
        self.layer, self.made = nn.Linear(4, 4), made

    def forward(self, x):
        if isinstance(self.made, torch.Generator):
            return x + self.layer(x).tanh() * torch.rand((), generator=self.made)
        return x + self.layer(x).tanh() * float(self.made.random())


@pytest.mark.parametrize("make", [torch.Generator, numpy.random.default_rng, random.Random])
def test_generators_of_the_blocks_own_draw_the_same_again_and_stand_where_they_would(make):
    def trained(is_on):
        torch.manual_seed(0)
        generators = [make().manual_seed(3) if make is torch.Generator else make(3) for _ in range(2)]
        model = nn.Sequential(nn.ModuleList([Noisy(generator) for generator in generators]))
        if is_on:
            Checkpointing(model).apply()
        found = torch.ones(2, 4)
        for _ in range(2):
            for block in model[0]:
                found = block(found)
        found.sum().backward()
        after = [float(torch.rand((), generator=g) if make is torch.Generator else g.random()) for g in generators]
        return [parameter.grad for parameter in model.parameters()], after

    (plain, stood), (again, stands) = trained(False), trained(True)
    assert all(map(torch.equal, plain, again)) and stands == stood


def test_gradients_of_gradients_go_through_blocks_that_are_computed_again():
    def penalised(is_on):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), *[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])
        if is_on:
            Checkpointing(model).apply()
        x = torch.ones(2, 8, requires_grad=True)
        output = model(x)
        (inner,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        (output.mean() + inner.square().sum()).backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(penalised(True), penalised(False), strict=True))
