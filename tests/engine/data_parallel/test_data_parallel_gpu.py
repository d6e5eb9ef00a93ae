"""DataParallel on one GPU that is named twice, and on several where there are any."""

import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.precision import Precision
from brim.engine.data_parallel.data_parallel import DataParallelLoss
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.errors import ConfigError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs several CUDA devices")
GPU = torch.device("cuda", 0)
TWICE = [GPU, GPU]
ALL = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
WIDTH = 32


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """cuDNN computes recurrent modules in TF32 unless told otherwise: then other shapes round differently."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


CLOSE = 2e-4  # kernels for halves of a batch round differently, and Adam makes more of it (4.8e-5 seen)


class Recurrent(nn.Module):
    """Counts tokens, and has a term over all weights."""

    def __init__(self):
        super().__init__()
        self.table, self.lstm = nn.Embedding(11, WIDTH), nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.out = nn.Linear(WIDTH, 11)

    def calculate_loss(self, batch):
        ids, real = batch["ids"], batch["real"]
        logits = self.out(self.lstm(self.table(ids))[0])
        total = (F.cross_entropy(logits.mT, ids.roll(1, 1), reduction="none") * real).sum()
        return Loss(total + 0.01 * real.sum() * sum(p.square().sum() for p in self.parameters()), real.sum())


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.unused = nn.Linear(WIDTH, WIDTH)

    def calculate_loss(self, batch):
        return self.body(F.one_hot(batch["ids"], WIDTH).float()).square().mean()


def texts(step, size=13):
    generator = torch.Generator().manual_seed(step)
    lengths = torch.randint(0, 9, (size,), generator=generator)
    batch = {"ids": torch.randint(0, 11, (size, 8), generator=generator), "real": torch.arange(8) < lengths[:, None]}
    return {name: tensor.to(GPU) for name, tensor in batch.items()}


def trained(build, compute_for, precision="32", steps=20, **settings):
    torch.manual_seed(0)
    model = build().to(GPU)
    step = EagerStep(
        compute_for(model), torch.optim.AdamW(model.parameters(), lr=1e-3), Precision(precision, GPU), **settings
    )
    losses = [step([texts(number)]).loss for number in range(steps)]
    return model, torch.stack(losses)


def difference(one, other):
    mine, theirs = (torch.cat([p.detach().flatten() for p in m.parameters()]).double() for m in (one, other))
    return float((mine - theirs).norm() / theirs.norm())


def plain(model):
    return loss_of(model, None)


def over(devices):
    """The real thing: torch's own copies."""
    return lambda model: DataParallelLoss(model, None, devices, sliceable=True)


@pytest.mark.parametrize("build", [Recurrent, Layers])
@pytest.mark.parametrize("micro_batch", [None, 5])
def test_a_gpu_that_is_named_twice_trains_as_it_does_alone(build, micro_batch, parallel):
    alone, alone_losses = trained(build, plain)
    twice, losses = trained(build, lambda model: parallel(model, None, TWICE), micro_batch=micro_batch)
    torch.testing.assert_close(losses, alone_losses, rtol=1e-4, atol=1e-5)
    assert difference(twice, alone) <= CLOSE
    assert getattr(twice, "unused", nn.Linear(1, 1)).weight.grad is None


@pytest.mark.parametrize("build", [Recurrent, Layers])
def test_torchs_own_copies_of_a_gpu_named_twice_train_alike(build):
    assert difference(trained(build, over(TWICE))[0], trained(build, plain)[0]) <= CLOSE


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_mixed_precision_reaches_every_thread(precision, dtype, parallel):
    seen = []

    def loss(model, batch):
        output = model(F.one_hot(batch["ids"], WIDTH).float())
        seen.append((output.dtype, threading.current_thread().name))
        return output.float().square().mean()

    trained(lambda: nn.Linear(WIDTH, 1), lambda model: parallel(model, loss, TWICE), precision, steps=3)
    assert {kind for kind, _ in seen} == {dtype}
    assert len({name for _, name in seen}) == 4  # the caller's, and a new one in each step


def test_threads_compute_on_their_callers_stream(parallel):
    seen, stream = [], torch.cuda.Stream(GPU)

    def loss(model, batch):
        seen.append((torch.cuda.current_stream(), torch.cuda.current_device()))
        return model(F.one_hot(batch["ids"], WIDTH).float()).square().mean()

    compute = parallel(nn.Linear(WIDTH, 1).to(GPU), loss, TWICE)
    with torch.cuda.stream(stream):
        compute(texts(0))
    assert seen == [(stream, 0)] * 2


class Hungry(nn.Module):
    """16 MiB a sample, kept for the backward pass."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(WIDTH, 1)

    def calculate_loss(self, batch):
        output = self.out(F.one_hot(batch["ids"], WIDTH).float()).mean(1)
        return (output * torch.ones(1 << 22, device=output.device)).sigmoid().mean()


def test_running_out_of_memory_on_one_device_is_a_step_in_smaller_slices(parallel):
    told, model = [], Hungry().to(GPU)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = EagerStep(parallel(model, None, TWICE), torch.optim.SGD(model.parameters(), lr=0.1), Precision("32", GPU))
    guard = GuardedStep(step, model, lambda sentence, **facts: told.append(sentence))
    gc.collect()
    torch.cuda.empty_cache()
    held = torch.cuda.memory_allocated(GPU)
    torch.cuda.set_per_process_memory_fraction((768 << 20) / torch.cuda.mem_get_info(GPU)[1], GPU)
    try:
        for number in range(3):
            guard([texts(number, 32)])
        left = torch.cuda.memory_allocated(GPU)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, GPU)
        torch.cuda.empty_cache()
    assert guard.failures >= 1
    assert "out of memory" in told[0]
    assert left - held < 200 << 20  # workspaces of cuBLAS, and nothing of the failed tries
    sliced = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter, start in zip(model.parameters(), before, strict=True):
        parameter.data.copy_(start)
    whole = EagerStep(plain(model), torch.optim.SGD(model.parameters(), lr=0.1), Precision("32", GPU))
    for number in range(3):
        whole([texts(number, 32)])
    for one, other in zip(sliced, model.parameters(), strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-4, atol=1e-5)


@several
@pytest.mark.parametrize("build", [Recurrent, Layers])
def test_several_gpus_train_as_one(build):
    alone, alone_losses = trained(build, plain)
    spread, losses = trained(build, over(ALL))
    torch.testing.assert_close(losses, alone_losses, rtol=1e-4, atol=1e-5)
    assert difference(spread, alone) <= CLOSE
    assert {parameter.device for parameter in spread.parameters()} == {GPU}


@several
def test_gpus_drop_neurons_of_their_own_and_the_same_ones_again():
    def losses():
        compute = DataParallelLoss(nn.Dropout(), lambda model, x: drawn.append(model(x).cpu()) or x.mean(), ALL, True)
        torch.manual_seed(0)
        drawn.clear()
        compute(torch.ones(64 * len(ALL), device=GPU))
        return sorted(tuple(share.tolist()) for share in drawn)

    drawn: list[torch.Tensor] = []
    assert losses() == losses()
    assert len(set(losses())) == len(ALL)


@several
def test_a_tensor_that_the_model_does_not_own_is_explained():
    scale = torch.ones(WIDTH, device=GPU)
    compute = DataParallelLoss(
        nn.Linear(WIDTH, WIDTH).to(GPU), lambda model, x: (model(x) * scale).mean(), ALL, sliceable=True
    )
    with pytest.raises(ConfigError, match="does not own"):
        compute(torch.ones(8, WIDTH, device=GPU))
