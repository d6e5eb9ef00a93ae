"""What is exchanged between ranks, for models and runs that are not of the plainest kind."""

import os
import time
import warnings

import pytest
import torch
from rank_training import ROUNDING, X, Y, alone_of_one, are_the_same_bits, columns, difference, net, train
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import brim
from brim.engine.checkpoints import saver
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.distributed import ranks as ranks_module
from brim.engine.trainer import run_now


class Thaw(brim.Callback):
    """The first layer joins in after the first epoch, as in fine-tuning."""

    def on_epoch_end(self, trainer, epoch):
        trainer.model[0].requires_grad_(True)


def thawing():
    model = net()
    model[0].requires_grad_(False)
    return train(columns(32), model, callbacks=[Thaw()], max_steps=20, optimizer=torch.optim.AdamW(model.parameters()))


def transposed():
    """A weight that is a view with strides of its own, and a buffer that repeats itself."""
    model = net()
    model[0].weight = nn.Parameter(model[0].weight.detach().t().contiguous().t())
    model.register_buffer("mask", torch.ones(1).expand(5))
    return train(model=model, max_steps=10)


def channels_last():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 1))
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(40, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    return train(brim.Loader((x, x.mean((1, 2, 3), keepdim=False)[:, None]), 8), model, max_steps=10)


class SparseBag(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(50, 4, sparse=True)

    def calculate_loss(self, batch):
        return (self.table(batch).sum(1) - 1).square().mean()


def sparse():
    return train(brim.Loader(torch.arange(200) % 50, 16), SparseBag(), loss_fn=None, max_steps=10)


def small_buckets():
    """The exchange in many pieces: other sums, the same training."""
    ranks_module.BUCKET_BYTES = 100
    return train(max_steps=20)


def doubles():
    """Parameters of two types."""
    model = net()
    model[2].to(torch.float64)
    model.insert(2, _ToDouble())
    return train(brim.Loader((X, Y.double()), 16), model, max_steps=20)


class _ToDouble(nn.Module):
    def forward(self, x):
        return x.double()


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    "case",
    [
        "transposed",
        "channels_last",
        "small_buckets",
        "doubles",
        "thawing",
    ],
)
def test_two_ranks_train_as_one(launch, case):
    function = globals()[case]
    (alone,) = launch(1, function)
    first, second = launch(2, function)
    assert difference(first, alone) <= ROUNDING
    assert are_the_same_bits(first, second)


def test_sparse_gradients_are_refused_on_all_ranks(launch):
    for outcome in launch.outcomes(2, sparse):
        assert outcome.error == "ConfigError" and "sparse=False" in outcome.message


def slow_disk():
    """Writing a checkpoint takes longer than a save waits for the one before."""
    write = Checkpoints.write

    def slowly(self, moment):
        time.sleep(0.3)
        return write(self, moment)

    Checkpoints.write, saver.PATIENCE_S = slowly, 0.0
    return train(max_steps=8, checkpoint_every=2)


@pytest.mark.slow
def test_a_checkpoint_that_is_left_out_leaves_nobody_waiting(launch):
    first, second = launch.outcomes(2, slow_disk)
    assert (first.error, second.error) == ("", "")
    run = launch.folder / f"launch-{launch.launches}" / "run"
    assert (run / "checkpoints" / "step-000000008").exists()


def two_runs():
    """A second trainer in the same process, as in a notebook or a sweep."""
    one = train(max_steps=5, run_dir="one")
    other = train(max_steps=5, run_dir="other")
    return are_the_same_bits(one, other)


def test_a_process_may_train_twice(launch):
    assert launch(2, two_runs) == [True, True]


def strategies():
    trainers = [brim.Trainer(net(), columns(), loss_fn=nn.MSELoss(), device="cpu", strategy="ddp") for _ in range(2)]
    return [trainer.strategy for trainer in trainers]


def test_one_rank_of_one_is_a_rank_in_its_second_run_as_well(launch):
    assert launch(1, strategies, environment=alone_of_one()) == [["ddp", "ddp"]]


def with_own_sampler():
    data = TensorDataset(X, Y)
    seen = []

    class Seen(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            seen.extend(row for batch in run_now(trainer).window for row in batch[0][:, 0].tolist())

    own = brim.engine.distributed.ranks.Ranks.from_environment()
    sampler = DistributedSampler(data, num_replicas=own.world, rank=own.rank)
    train(DataLoader(data, 8, sampler=sampler), callbacks=[Seen()], epochs=1, max_steps=None)
    return seen


def test_data_that_a_distributed_sampler_has_divided_is_not_divided_again(launch):
    for outcome in launch.outcomes(2, with_own_sampler):
        assert outcome.error == "DataError" and "leave the sampler out" in outcome.message


def met_by_hand(meeting):
    """The program has met the others itself, without a launcher's variables (multiprocessing.spawn)."""
    rank, world = (int(os.environ.pop(name)) for name in ("RANK", "WORLD_SIZE"))
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=world)
    torch.distributed.barrier()  # one that is done and gone would be missed by one that still connects
    return brim.Trainer(net(), columns(), loss_fn=nn.MSELoss(), device="cpu").ranks.world


def test_processes_that_have_met_already_train_together(launch, tmp_path):
    assert launch(2, met_by_hand, meeting=str(tmp_path / "meeting")) == [2, 2]


def twice_in_a_group():
    """torch only warns of it."""
    model = net()
    parameters = list(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = torch.optim.SGD([*parameters, parameters[0]], lr=0.01)
    return train(model=model, optimizer=optimizer, max_steps=10)


def test_a_parameter_that_is_listed_twice_is_exchanged_once(launch):
    (alone,) = launch(1, twice_in_a_group)
    first, second = launch(2, twice_in_a_group)
    assert difference(first, alone) <= ROUNDING and are_the_same_bits(first, second)


def wrapped_by_hand():
    return train(model=nn.parallel.DataParallel(net()), max_steps=2)


def test_a_wrapped_model_is_refused(launch):
    for outcome in launch.outcomes(2, wrapped_by_hand):
        assert outcome.error == "ConfigError" and "model.module" in outcome.message
