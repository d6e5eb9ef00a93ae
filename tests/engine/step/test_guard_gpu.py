"""Running out of memory for real: a cap on what torch may reserve, and models that need more."""

import gc

import pytest
import torch
from helpers.gpu_leftovers import fill_leftovers
from torch import nn

import brim
from brim.data import Loader
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.trainer import run_now

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GPU = torch.device("cuda", 0)
ROWS, WIDTH = 4096, 256


@pytest.fixture
def cap():
    """Limits what torch may reserve for the test, in MiB, whatever was there before; lifted again at the end."""
    leftovers = fill_leftovers()
    before = torch.cuda.memory_reserved(GPU)

    def limit(mib):
        gc.collect()
        torch.cuda.empty_cache()
        total = torch.cuda.mem_get_info(GPU)[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, (before + (mib << 20)) / total), GPU)
        own = torch.cuda.memory_reserved(GPU) - before
        print(f"{mib} MiB allowed, of which {own / 2**20:.0f} MiB are reserved")  # shown where the test fails

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0, GPU)
    leftovers.clear()
    gc.collect()
    torch.cuda.empty_cache()


class HungryBackward(torch.autograd.Function):
    """64 KiB a row, in the backward pass only."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        torch.empty(len(gradient) * 16384, device=gradient.device)
        return gradient


class Hungry(nn.Module):
    def __init__(self, where="forward", dropout=0.0, norm=False):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4096), nn.GELU(), nn.BatchNorm1d(4096) if norm else nn.Identity(), nn.Dropout(dropout),
            nn.Linear(4096, 1),
        )  # fmt: skip
        self.where = where

    def forward(self, x):
        if self.where == "backward":
            return HungryBackward.apply(self.layers[4](self.layers[0](x[:, :WIDTH]).relu_()))
        return self.layers(x)


def guarded(precision="32", clip_norm=None, micro_batch=None, **settings):
    torch.manual_seed(0)
    model = Hungry(**settings).to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    step = EagerStep(loss_of(model, nn.MSELoss()), optimizer, Precision(precision, GPU), micro_batch, clip_norm)
    told = []
    return GuardedStep(step, model, lambda sentence, **facts: told.append(sentence)), model, told


def batch(rows=ROWS):
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1)).to(GPU)
    return x, x.sum(1, keepdim=True)


def weights(model):
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


def difference(one, other):
    return float((weights(one) - weights(other)).norm() / weights(other).norm())


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_a_run_that_runs_out_of_memory_ends_with_the_weights_of_one_that_does_not(cap, where, clip_norm):
    free, plain, _ = guarded(where=where, clip_norm=clip_norm)
    window = [batch()]
    for _ in range(30):
        free(window)
    assert free.failures == 0
    torch.cuda.empty_cache()
    short, model, told = guarded(where=where, clip_norm=clip_norm)
    cap(160)
    for _ in range(30):
        short(window)
    assert short.failures > 0 and short.micro_batch < ROWS
    assert difference(model, plain) <= 3e-5  # sums in another order, 30 times one after the other
    assert told[0].startswith("out of memory in the")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_and_its_loss_scale_survive_too(cap, precision):
    window = [batch()]
    short, _, _ = guarded(precision, clip_norm=1.0)
    cap(110)
    first = float(short(window).loss)
    for _ in range(60):
        last = float(short(window).loss)
    assert short.failures > 0
    assert last < first


def test_dropout_and_batch_norm_go_on_with_a_warning(cap):
    short, model, told = guarded(dropout=0.5, norm=True)
    cap(200)
    for _ in range(10):
        loss = short([batch()]).loss
    assert bool(torch.isfinite(loss))
    assert any("BatchNorm" in sentence for sentence in told)
    assert bool(torch.isfinite(model.layers[2].running_mean).all())


def test_the_retried_step_is_to_the_bit_the_step_with_these_slices(cap):
    short, model, _ = guarded(dropout=0.5)
    cap(200)
    short([batch()])
    size = short.micro_batch
    cap(1 << 16)
    plain, same, _ = guarded(dropout=0.5, micro_batch=size)
    plain([batch()])
    assert short.failures > 0
    assert torch.equal(weights(model), weights(same))


def test_evaluation_slices_by_itself_and_training_stays_whole(cap, tmp_path):
    torch.manual_seed(0)
    x, y = (part.cpu() for part in batch(16 * ROWS))
    model = Hungry()
    trainer = brim.Trainer(
        model, Loader((x[:1024], y[:1024]), 256), Loader((x, y), 16 * ROWS), loss_fn=nn.MSELoss(),
        run_dir=tmp_path / "r",
    )  # fmt: skip
    cap(700)
    result = trainer.fit()
    assert result.steps == 4
    assert result.metrics["loss"] > 0
    assert run_now(trainer).state.progress.micro_batch is None


def test_a_trainer_without_a_forecast_goes_on_as_well(cap, tmp_path):
    x, y = (part.cpu() for part in batch(4 * ROWS))
    trainer = brim.Trainer(
        Hungry(), Loader((x, y), ROWS, feed="batched"), loss_fn=nn.MSELoss(), micro_batch=ROWS, epochs=3,
        run_dir=tmp_path / "r",
    )  # fmt: skip
    cap(180)
    assert trainer.fit().steps == 12
    assert "out of memory" in (tmp_path / "r" / "log.txt").read_text()


def test_where_nothing_fits_the_run_ends_with_a_checkpoint_and_advice(cap, tmp_path):
    x, y = (part.cpu() for part in batch(64))
    model = nn.Sequential(nn.Linear(WIDTH, 1 << 18), nn.Linear(1 << 18, 1))  # 256 MiB of weights, as much of gradients
    trainer = brim.Trainer(model, Loader((x, y), 64), loss_fn=nn.MSELoss(), run_dir=tmp_path / "r")
    cap(400)
    with pytest.raises(brim.BrimError) as caught:
        trainer.fit()
    assert caught.value.exit_code == 3


def test_a_step_of_ones_own_loop_survives(cap):
    torch.manual_seed(0)
    model = Hungry().to(GPU)
    told = []
    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=1e-3), nn.MSELoss(), tell=told.append)
    cap(140)
    for _ in range(3):
        loss = step(batch())
    assert bool(torch.isfinite(loss)) and told and step.micro_batch < ROWS
