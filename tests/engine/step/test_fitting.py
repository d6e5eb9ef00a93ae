"""The fastest way that fits, taken before the first step and after real shortages: the plain loop's training."""

import copy
from types import SimpleNamespace

import pytest
import torch
from helpers.faults import ran_out
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step import planned_step
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.planned_step import PlannedStep
from brim.hardware.inventory import Gpu
from brim.logits.chunked_head import chunked_logits

CPU = torch.device("cpu")
MIB = 1 << 20
ROWS, WIDTH = 64, 64


@pytest.fixture(autouse=True)
def rules_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)


@pytest.fixture
def on_a_card(monkeypatch):
    """As if the step ran on an A10G of which so many bytes are free."""

    def card(free):
        gpu = Gpu(0, "NVIDIA A10G", 24_000_000_000)
        monkeypatch.setattr(planned_step, "inventory", lambda: SimpleNamespace(gpus=(gpu,)))
        monkeypatch.setattr(planned_step, "usable_memory", lambda device: free)

    return card


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow, self.dropout = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.narrow(torch.tanh(self.wide(x))))


def deep(blocks=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, WIDTH), nn.Sequential(*(Block() for _ in range(blocks))), nn.Linear(WIDTH, 1))


def rows(length=256):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, length, 8, generator=generator), torch.randn(ROWS, length, 1, generator=generator)


class Told(list):
    def __call__(self, sentence, **facts):
        self.append(sentence)


def fitted(model, loss=None, **settings):
    """A planned step with ``fit="auto"``, what was planned, and what the guard said."""
    plans, told, loss = [], Told(), loss or nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = EagerStep(loss_of(model, loss), optimizer, Precision("32", CPU), settings.pop("micro_batch", None))
    guard = GuardedStep(step, model, told, settings.get("sliceable"), settings.get("checkpointing"))
    planned = PlannedStep(
        guard, model, loss, settings.get("sliceable"), lambda plan, trouble: plans.append((plan, trouble)), fits=True
    )
    return planned, plans, told


def plain(model, batch, steps=2, seed=5):
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
        optimizer.step()
    return weights(model)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained(planned, batch, steps=2, seed=5):
    torch.manual_seed(seed)
    for _ in range(steps):
        planned([batch])
    return weights(planned.model)


def recomputed(model):
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_a_batch_that_fits_is_left_as_it_is(on_a_card):
    on_a_card(1 << 40)
    model = deep()
    planned, plans, _ = fitted(copy.deepcopy(model))
    assert torch.equal(trained(planned, rows()), plain(model, rows()))
    ((plan, trouble),) = plans
    assert (plan.slices, plan.cost, plan.checkpointing, trouble) == (1, "", False, "")
    assert recomputed(planned.model) == []


@pytest.mark.parametrize(("free", "times"), [(1 << 40, 0), (160 * MIB, 1)])
def test_that_it_searches_is_said_where_it_does(on_a_card, free, times):
    on_a_card(free)
    planned, _, _ = fitted(deep(), sliceable=False)
    searched = []
    planned.searches = lambda: searched.append(True)
    trained(planned, rows())
    assert len(searched) == times


def test_blocks_that_are_computed_again_give_the_same_bits(on_a_card):
    on_a_card(160 * MIB)
    model = deep()
    planned, plans, _ = fitted(copy.deepcopy(model), sliceable=False)
    assert torch.equal(trained(planned, rows()), plain(model, rows()))
    ((plan, trouble),) = plans
    assert trouble == ""
    assert plan.slices == 1
    assert 0 < len(plan.checkpointing) < 4  # the least that fits
    assert recomputed(planned.model) == list(plan.checkpointing)
    assert f"{len(plan.checkpointing)} of 4 blocks recomputed: +" in plan.cost
    assert plan.forecast.reserved <= 160 * MIB


@pytest.mark.slow
def test_micro_batches_and_blocks_together_are_the_same_training_but_for_rounding(on_a_card):
    on_a_card(110 * MIB)
    model = deep()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # micro-batches draw other masks
    planned, plans, _ = fitted(copy.deepcopy(model))
    assert torch.allclose(trained(planned, rows()), plain(model, rows()), rtol=1e-4, atol=1e-6)
    assert plans[0][0].slices > 1
    assert planned.guard.micro_batch == plans[0][0].micro_batch


@pytest.mark.matrix(1)
@pytest.mark.parametrize("choice", [True, False, ["1.0"]], ids=repr)
def test_blocks_that_somebody_chose_stay(on_a_card, choice):
    on_a_card(160 * MIB)
    planned, plans, _ = fitted(deep(), checkpointing=choice)
    before = recomputed(planned.model)
    planned([rows()])
    assert recomputed(planned.model) == before
    assert plans[0][1] == ""


@pytest.mark.slow
def test_a_micro_batch_that_somebody_chose_stays(on_a_card):
    on_a_card(110 * MIB)
    planned, plans, _ = fitted(deep(), micro_batch=32)
    planned([rows()])
    assert planned.guard.micro_batch == 32
    assert (plans[0][0].micro_batch, plans[0][0].slices) == (32, 2)
    assert recomputed(planned.model)


@pytest.mark.slow
def test_where_nothing_fits_it_is_said_and_the_step_runs(on_a_card):
    on_a_card(1 * MIB)
    planned, plans, _ = fitted(deep())
    planned([rows()])
    ((plan, trouble),) = plans
    assert plan is None
    assert "fits in no way that fit='auto' knows; what takes the least is micro-batch 1" in trouble


def test_after_a_real_shortage_the_next_rung_is_taken_and_told(on_a_card):
    on_a_card(195 * MIB)
    model = deep()
    planned, plans, told = fitted(copy.deepcopy(model), sliceable=False)
    step, calls = planned.guard.step, iter([True, True])
    gradients = step.gradients

    def failing(window):
        if next(calls, False):
            raise ran_out()
        return gradients(window)

    step.gradients = failing
    assert torch.equal(trained(planned, rows()), plain(model, rows()))
    said = [sentence for sentence in told if "going on with" in sentence]
    assert len(said) == 2
    counts = [int(sentence.partition(" of 4 blocks")[0].split()[-1]) for sentence in said]
    assert 0 < counts[0] < counts[1]  # the next takes less
    assert "% step time (forecast)" in said[0]
    assert len(recomputed(planned.model)) == counts[1]
    assert plans[0][0].slices == 1


@pytest.mark.slow
def test_logits_go_into_chunks_where_that_is_fastest(on_a_card):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=5000, n_positions=64, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0)
    config.embd_pdrop = config.attn_pdrop = 0.0
    model = GPT2LMHeadModel(config)
    words = torch.randint(0, 5000, (64, 64))
    batch = {"input_ids": words, "labels": words}
    on_a_card(200 * MIB)
    other, optimizer = copy.deepcopy(model), None
    planned, plans, _ = fitted(model, lambda model, batch: model(**batch).loss)
    with chunked_logits(model, "whole", waits=True):
        planned([batch])
    ((plan, trouble),) = plans
    assert trouble == ""
    assert plan.logits == "chunked"
    assert "logits in chunks" in plan.cost
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    other(**batch).loss.backward()
    optimizer.step()
    assert torch.allclose(weights(model), weights(other), rtol=1e-3, atol=1e-6)
    assert "forward" not in vars(model.lm_head)
