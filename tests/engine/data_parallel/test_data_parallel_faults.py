"""DataParallel where something is in its way: memory that runs out, norms, losses and models that cannot be shared."""

import random
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.faults import ran_out
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.precision import Precision
from brim.engine.components.settings import TrainerSettings
from brim.engine.data_parallel.data_parallel import devices_for, draw_apart
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.errors import CannotFit, ConfigError

CPU = torch.device("cpu")


def columns(step, size):
    generator = torch.Generator().manual_seed(100 * step + size)
    return torch.randn(size, 4, generator=generator), torch.randn(size, 1, generator=generator)


def mlp(outputs=1):
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs))


def difference(one, other):
    mine, theirs = (torch.cat([p.detach().flatten() for p in m.parameters()]).double() for m in (one, other))
    return float((mine - theirs).norm() / theirs.norm())


class Fails:
    """Runs out of memory for more than ``most`` samples, in the share that begins with the sample ``share``."""

    def __init__(self, most, share=0, where="forward"):
        self.most, self.share, self.where = most, share, where

    def __call__(self, model, batch):
        x, y, numbers = batch
        output = model(x)
        if model.training and len(x) > self.most and numbers[0] >= self.share:
            if self.where == "forward":
                self.run_out()
            output.register_hook(self.run_out)
        return F.mse_loss(output, y)

    def run_out(self, gradient=None):
        raise ran_out()


def guarded(compute_for, told=None):
    """Twenty guarded steps of twelve samples."""
    torch.manual_seed(0)
    model = mlp()
    step = EagerStep(compute_for(model), torch.optim.AdamW(model.parameters(), lr=0.01), Precision("32", CPU))
    guard = GuardedStep(step, model, lambda sentence, **facts: (told if told is not None else []).append(sentence))
    for number in range(20):
        guard([(*columns(number, 12), torch.arange(12))])
    return model, guard


@pytest.mark.matrix(2)
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("share", [0, 4, 8], ids=["first", "second", "last"])
def test_memory_that_runs_out_on_one_device_is_a_step_in_smaller_slices(share, where, parallel):
    told, threads = [], threading.active_count()
    model, guard = guarded(lambda model: parallel(model, Fails(2, share, where)), told)
    plain, _ = guarded(lambda model: loss_of(model, Fails(99)))
    assert guard.failures >= 1
    assert guard.micro_batch is not None
    assert f"out of memory in the {where} pass" in told[0]
    assert "test_data_parallel_faults.py:" in told[0]  # the line, out of another thread
    assert difference(model, plain) <= 1e-6
    assert threading.active_count() == threads


def test_where_a_single_sample_does_not_fit_the_run_ends_with_the_reason(parallel):
    with pytest.raises(CannotFit, match="no memory for two samples"):
        guarded(lambda model: parallel(model, Fails(0)))


def test_every_device_has_its_own_norms_and_the_first_ones_are_kept(parallel):
    told = []
    model, reference = (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)) for _ in range(2))
    compute = parallel(model, nn.MSELoss(), 4, told)
    for size in (8, 7):
        batch = columns(0, size)
        compute(batch)
        reference(batch[0][: size // (4 if size == 8 else 3)])  # no share of one sample
    torch.testing.assert_close(model[0].running_mean, reference[0].running_mean)
    assert model[0].num_batches_tracked == 2
    assert len(told) == 1
    assert "another training" in told[0]


def contrast(model, batch):
    output = model(batch[0])
    return F.cross_entropy(output @ output.T, torch.arange(len(output)))


def test_a_loss_that_looks_across_the_batch_stays_on_one_device(parallel):
    told, model, batch = [], mlp(4), columns(0, 8)
    compute = parallel(model, contrast, told=told, sliceable=None)
    assert torch.equal(compute(batch), contrast(model, batch))
    assert compute.devices == [CPU]
    assert "looks across the batch" in told[0]
    assert "computes it alone" in told[0]
    assert isinstance(parallel(model, contrast, sliceable=True)(batch), Loss)
    with pytest.raises(ConfigError, match="sliceable=False, and 3 GPUs"):
        parallel(model, contrast, sliceable=False)


def test_what_has_no_samples_to_share_out_stays_on_one_device(parallel):
    told, model = [], nn.LSTM(4, 2)
    compute = parallel(model, lambda m, packed: m(packed)[0].data.mean(), told=told, sliceable=None)
    compute(pack_sequence([torch.randn(3, 4), torch.randn(2, 4)]))
    assert compute.devices == [CPU]
    assert "PackedSequence" in told[0]


def test_looking_at_the_first_batch_leaves_random_numbers_and_modes_alone(parallel):
    def loss(model, batch):
        random.random(), np.random.rand(), torch.rand(1)
        return F.mse_loss(model(batch[0]), batch[1])

    def states():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    model, before = nn.Sequential(nn.Dropout(), nn.Linear(4, 1)), states()
    compute = parallel(model, loss, sliceable=None)
    compute.look_at(columns(0, 8))
    assert states() == before
    assert model[0].training
    assert len(compute.devices) == 3


def test_a_loss_with_buffers_is_copied_with_the_model(parallel):
    class Weighted(nn.MSELoss):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.tensor(2.0))

        def forward(self, input, target):
            seen.append(self.weight.data_ptr())
            return self.weight * super().forward(input, target)

    seen, loss_fn = [], Weighted()
    parallel(mlp(), loss_fn)(columns(0, 6))
    assert len(set(seen)) == 3
    assert loss_fn.weight.data_ptr() in seen


def test_state_that_is_set_on_a_copy_is_said_to_be_lost(parallel):
    class Counts(nn.Linear):
        def forward(self, x):
            self.calls = 1
            return super().forward(x)

    told = []
    compute = parallel(Counts(4, 1), nn.MSELoss(), told=told)
    for number in range(3):
        compute(columns(number, 6))
    assert len(told) == 1
    assert "Counts.calls is set while the loss is computed" in told[0]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"sliceable": False}, "sliceable=False"),
        ({"capture": "require"}, "not captured"),
        ({"compile": True}, "not compiled"),
        ({"model": nn.Linear(2, 2, device="meta")}, "is on meta"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_was_asked_for_by_name_comes_before_more_gpus(setting, said):
    devices = [CPU, torch.device("cuda", 1)]
    plain, model = TrainerSettings(), setting.get("model", nn.Linear(2, 2))
    asked = replace(plain, **{name: value for name, value in setting.items() if name != "model"})
    assert devices_for(nn.Linear(2, 2), devices, plain) == (devices, "")
    assert devices_for(nn.Linear(2, 2), devices, replace(plain, strategy="ddp")) == ([CPU], "")
    assert devices_for(model, [CPU], asked) == ([CPU], "")
    chosen, sentence = devices_for(model, devices, asked)
    assert chosen == [CPU]
    assert said in sentence
    assert "training is on cpu alone" in sentence
    with pytest.raises(ConfigError, match="strategy='dp' cannot be used: "):
        devices_for(model, devices, replace(asked, strategy="dp"))


def test_a_model_that_cannot_be_copied_is_refused_by_name(parallel):
    with pytest.raises(ConfigError, match=r"cannot be copied to 3 GPUs: model\.0 is a ScriptModule"):
        parallel(nn.Sequential(torch.jit.script(nn.Linear(2, 2))), nn.MSELoss())


class Generator:
    def __init__(self, offset=0):
        self.seed, self.offset = 3, offset

    def initial_seed(self):
        return self.seed

    def get_offset(self):
        return self.offset

    def manual_seed(self, seed):
        self.seed = seed


def test_every_gpu_draws_its_own_numbers_as_the_first_ones_generator_says():
    def seeds(offset):
        generators = [Generator(offset) for _ in range(4)]
        draw_apart([torch.device("cuda", index) for index in (1, 0, 3, 1)], generators)
        return [generator.seed for generator in generators]

    assert seeds(0) == seeds(0)
    assert seeds(0)[1:3] == [3, 3]  # the first device's own, and one that takes no part
    assert len({*seeds(0), *seeds(8)}) == 5
