"""Ranks on a GPU: two that share it over gloo, one of them with too little memory, and one alone over NCCL."""

import pytest
import torch
from rank_training import alone_of_one, difference, this_rank
from torch import nn

import brim

pytestmark = pytest.mark.gpu
WIDTH, BATCH, STEPS = 1024, 512, 6
TO_TRAIN, TO_EVALUATE = 640 << 20, 260 << 20  # bytes; whole shares would take 940 and 330 MiB
HUNGRY = 200 << 20  # for shares that take 256 MiB in the backward pass
CLOSE = 1e-4  # matrix products of other sizes round differently


class Wide(nn.Module):
    """Blocks whose activations take far more than their weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(16, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(3)
        )
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = self.first(x).unsqueeze(1).expand(-1, 64, -1)  # as a sequence of 64
        for block in self.blocks:
            x = x + block(x)
        return self.last(x.mean(1))


class Hungry(torch.autograd.Function):
    """Takes memory in the backward pass alone: a MiB for each sample."""

    ran_out = 0

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        try:
            torch.empty(len(gradient), 1 << 20, dtype=torch.uint8, device=gradient.device)
        except torch.OutOfMemoryError:
            Hungry.ran_out += 1
            raise
        return gradient


class HungryBackward(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = x + block(Hungry.apply(x) if number == 1 else x).tanh()
        return self.last(x)


def rows(samples):
    x = torch.randn(samples, 16, generator=torch.Generator().manual_seed(0))
    return x, x.sin().sum(1, keepdim=True)


def train(strategy, limit=None, micro_batch="auto", folder="run", eval_batch=64, kind=Wide):
    """``limit``: what torch may take on the second rank, in bytes."""
    if limit is not None and this_rank() == 1:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    model = kind()
    trainer = brim.Trainer(
        model, brim.Loader(rows(STEPS * BATCH), BATCH), brim.Loader(rows(BATCH), eval_batch), loss_fn=nn.MSELoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9), strategy=strategy,
        device="cuda:0", run_dir=folder, micro_batch=micro_batch, capture="off",
    )  # fmt: skip
    result = trainer.fit()
    weights = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    own = result.run if this_rank() == 0 else result.run / "ranks" / f"rank-{this_rank()}"
    log = (own / "events.jsonl").read_text()
    found = {"weights": weights, "loss": result.metrics["loss"], "steps": result.steps, "log": log}
    return {**found, "ran_out_in_backward": Hungry.ran_out}


def train_alone(kind=Wide):
    return train("single", micro_batch=64, folder="alone", kind=kind)


@pytest.fixture(scope="module")
def alone(launch_once):
    return launch_once.outcomes(1, train_alone)[0].value


def check(outcomes, alone):
    for outcome in outcomes:
        assert not outcome.error and outcome.exit_code == 0, outcome.output[-3000:]
        found = outcome.value
        assert difference(found, alone) <= CLOSE
        assert found["loss"] == pytest.approx(alone["loss"], rel=1e-3) and found["steps"] == STEPS
    return outcomes[0].value["log"]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_on_one_gpu_train_as_one_does(launch, alone, strategy):
    check(launch.outcomes(2, train, strategy=strategy, micro_batch=64), alone)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_rank_with_too_little_memory_goes_on_in_slices(launch, alone, strategy):
    outcomes = launch.outcomes(2, trained_with_less, strategy=strategy)
    log = check(outcomes, alone)
    assert "formed the group again" in log if strategy == "fsdp" else "micro-batches" in outcomes[1].value["log"]


def trained_with_less(strategy):
    return train(strategy, limit=TO_TRAIN)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_rank_that_runs_out_in_the_backward_pass(launch, strategy):
    alone = launch.outcomes(1, hungry_alone)[0].value
    outcomes = launch.outcomes(2, hungry_with_less, strategy=strategy)
    log = check(outcomes, alone)
    assert [outcome.value["ran_out_in_backward"] > 0 for outcome in outcomes] == [False, True]
    assert "formed the group again" in log if strategy == "fsdp" else "backward pass" in outcomes[1].value["log"]


def hungry_alone():
    return train_alone(HungryBackward)


def hungry_with_less(strategy):
    return train(strategy, limit=HUNGRY, micro_batch=BATCH // 2, kind=HungryBackward)  # "auto" would foresee it


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_evaluation_on_a_rank_with_too_little_memory(launch, alone, strategy):
    outcomes = launch.outcomes(2, evaluated_with_less, strategy=strategy)
    log = check(outcomes, alone)
    assert "out of memory in the evaluation" in (log if strategy == "fsdp" else outcomes[1].value["log"])


def evaluated_with_less(strategy):
    return train(strategy, limit=TO_EVALUATE, micro_batch=32, eval_batch=BATCH)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_one_rank_alone_over_nccl(launch, alone, strategy):
    outcomes = launch.outcomes(1, train, environment=alone_of_one(), strategy=strategy, micro_batch=64)
    log = check(outcomes, alone)
    assert "1 rank, " in log
