"""Two passes under a real cap on memory: the weights of the whole batch, and random numbers of the GPU that repeat."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import brim
from brim.engine.trainer import run_now

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GPU = torch.device("cuda", 0)
ROWS, WIDTH, LENGTH = 512, 256, 64
CLOSE = 1e-4  # matrix products of other sizes round differently


@pytest.fixture
def cap():
    """Limits what torch may reserve, in MiB; lifted again at the end."""

    def limit(mib):
        gc.collect()  # trainers of the tests before
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, (mib << 20) / torch.cuda.mem_get_info(GPU)[1]), GPU)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0, GPU)
    torch.cuda.empty_cache()


class Tower(nn.Module):
    """Activations of a sequence take far more than the weights: about 200 KiB a sample for each of its layers."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(16, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(dropout)) for _ in range(4)
        )

    def forward(self, x):
        x = self.first(x).unsqueeze(1).expand(-1, LENGTH, -1)
        for block in self.blocks:
            x = x + block(x)
        return F.normalize(x.mean(1), dim=1)


class Clip(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = Tower(dropout), Tower(dropout)
        self.scale = nn.Parameter(torch.tensor(1.0))


def encode(model, batch):
    return model.left(batch[0]), model.right(batch[1])


def contrast(left, right, model):
    found = left @ right.T * model.scale.exp()
    partner = torch.arange(len(found), device=found.device)
    return (F.cross_entropy(found, partner) + F.cross_entropy(found.T, partner)) / 2


CLIP = brim.TwoPass(encode, contrast)


def batch(rows=ROWS):
    left = torch.randn(rows, 16, generator=torch.Generator().manual_seed(1)).to(GPU)
    return left, left.sin()


def trained(steps=10, dropout=0.0, loss_fn=CLIP, **settings):
    told = []
    model = Clip(dropout).to(GPU)
    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.05), loss_fn, tell=told.append, **settings)
    torch.manual_seed(2)
    for _ in range(steps):
        step(batch())
    return model, step, told


def off(one, other):
    mine, theirs = (torch.cat([p.detach().double().flatten() for p in m.parameters()]) for m in (one, other))
    return float((mine - theirs).norm() / theirs.norm())


def test_under_a_cap_it_trains_as_the_whole_batch_does_without_one(cap):
    whole, step, _ = trained(capture="off")
    assert step.micro_batch is None
    cap(320)
    model, step, told = trained(capture="off")
    assert step.micro_batch is not None and step.micro_batch < ROWS and told[0].startswith("out of memory")
    assert not any("another training" in sentence for sentence in told)
    assert off(model, whole) <= CLOSE


def test_a_trainer_plans_micro_batches_under_a_cap_and_stays_exact(cap, tmp_path):
    def fitted(name):
        model = Clip()
        trainer = brim.Trainer(
            model, [tuple(part.cpu() for part in batch())] * 6, loss_fn=CLIP, lr=0.05, run_dir=tmp_path / name,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05), capture="off",
        )  # fmt: skip
        trainer.fit()
        return model, trainer

    whole, _ = fitted("whole")
    cap(320)
    model, trainer = fitted("capped")
    assert run_now(trainer).guard.micro_batch is not None
    assert off(model, whole) <= CLOSE


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision_in_two_passes_is_that_of_the_whole_batch(precision):
    whole, _, _ = trained(precision=precision, capture="off")
    split, _, _ = trained(precision=precision, capture="off", micro_batch=64)
    moved = off(whole, Clip().to(GPU))
    assert moved > 0 and off(split, whole) <= 0.05 * moved + 1e-3


def test_both_passes_draw_the_same_on_the_gpu():
    """Against micro-batches by hand in one graph, which draw in the same order."""

    def by_hand(model, samples):
        parts = [encode(model, part) for part in zip(*(column.split(128) for column in samples), strict=True)]
        return contrast(*(torch.cat(column) for column in zip(*parts, strict=True)), model)

    expected, _, _ = trained(dropout=0.3, loss_fn=by_hand, capture="off")
    model, _, _ = trained(dropout=0.3, capture="off", micro_batch=128, sliceable=True)
    assert off(model, expected) <= CLOSE


def test_a_whole_batch_is_captured_and_two_passes_are_not():
    eager, _, _ = trained(capture="off")
    captured, step, _ = trained(capture="require")
    assert step.captured.captured and off(captured, eager) <= CLOSE
    split, step, _ = trained(micro_batch=128)
    assert "two passes" in step.captured.reason and off(split, eager) <= CLOSE
