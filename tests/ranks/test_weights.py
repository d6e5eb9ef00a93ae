"""One training, whatever the number of ranks: weights and losses as those of one rank."""

import pytest
import torch
from rank_training import (
    CLASSES,
    ROUNDING,
    SAMPLES,
    Branches,
    Tokens,
    X,
    Y,
    are_the_same_bits,
    columns,
    difference,
    logged_losses,
    net,
    train,
)
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import brim
from brim.workloads.recommender import BPR, Interactions, TrainDataLoader


class Rows(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return X[index], Y[index]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X[i], Y[i]) for i in range(SAMPLES)])


class OwnLoader(DataLoader):
    """One that brim does not take apart, since it may do anything."""


def lengths():
    return torch.arange(SAMPLES) % 7 + 1


def mostly_ignored():
    """In the order of the data: whole shares of a batch without a target that counts."""
    return CLASSES.where(torch.arange(SAMPLES) % 16 < 4, -100)


def recommender():
    generator = torch.Generator().manual_seed(3)
    pairs = torch.randperm(20 * 30, generator=generator)[:199]
    known = Interactions(pairs // 30, pairs % 30, 20, 30)
    return TrainDataLoader(known, batch_size=16, device="cpu")


def bpr():
    torch.manual_seed(5)
    return BPR(20, 30, 8)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def dicts():
    return brim.Loader({"x": X, "y": Y}, 16)


def loss_of_dict(model, batch):
    return nn.functional.mse_loss(model(batch["x"]), batch["y"])


OPTIMIZERS = {
    "plain SGD": dict,
    "momentum": lambda: {"optimizer": momentum},
    "AdamW": lambda: {"optimizer": adamw},
    "clip_norm": lambda: {"clip_norm": 0.1, "optimizer": momentum},
    "a schedule": lambda: {"scheduler": "cosine", "optimizer": momentum},
    "accumulation": lambda: {"gradient_accumulation_steps": 3},
    "accumulation of small batches": lambda: {"data": columns(3), "gradient_accumulation_steps": 4},
}
LOSSES = {
    "tokens": lambda: {"model": Tokens(), "loss_fn": None, "data": brim.Loader((X, Y, lengths()), 16)},
    "ignored targets": lambda: {
        "model": net(outputs=5), "loss_fn": nn.CrossEntropyLoss(),
        "data": brim.Loader((X, mostly_ignored()), 16, shuffle=False), "max_steps": 50,
    },
    "weighted classes": lambda: {
        "model": net(outputs=5), "loss_fn": nn.CrossEntropyLoss(weight=torch.tensor([0.1, 3.0, 1.0, 0.5, 0.0])),
        "data": brim.Loader((X, CLASSES), 16),
    },
    "a branch, AdamW": lambda: {"model": Branches(), "loss_fn": None, "optimizer": adamw},
    "the recommender": lambda: {"data": recommender(), "model": bpr(), "loss_fn": None, "optimizer": adamw},
}  # fmt: skip
FEEDS = {
    "fewer samples than ranks": lambda: {"data": columns(3)},
    "one sample a batch": lambda: {"data": columns(1)},
    "drop_last": lambda: {"data": columns(drop_last=True)},
    "a data set": lambda: {"data": brim.Loader(Rows(), 16, num_workers=0)},
    "a data set with workers": lambda: {"data": brim.Loader(Rows(), 16, num_workers=1), "max_steps": 20},
    "a stream": lambda: {"data": brim.Loader(Stream(), 16)},
    "a torch loader": lambda: {"data": DataLoader(TensorDataset(X, Y), 16, shuffle=True)},
    "a torch loader of its own": lambda: {"data": OwnLoader(TensorDataset(X, Y), 16, shuffle=True)},
    "ready batches": lambda: {"data": list(zip(X.split(16), Y.split(16), strict=True))},
    "dicts": lambda: {"data": dicts(), "loss_fn": loss_of_dict},
}
GROUPS = [OPTIMIZERS, LOSSES, FEEDS]
SLICED = ["momentum", "accumulation", "tokens", "ignored targets", "a branch, AdamW"]
CASES = OPTIMIZERS | LOSSES | FEEDS


def train_all(cases, **settings):
    """One training after the other by the same processes: starting them takes longer than training."""
    return {
        case: train(**{"run_dir": f"run-{number}", **CASES[case](), **settings}) for number, case in enumerate(cases)
    }


@pytest.fixture(scope="module")
def trained(launch_once):
    """The trainings of all ranks by number of ranks and case; each number of ranks when it is asked for."""

    class Together(dict):
        def __missing__(self, world):
            self[world] = {}
            for group in GROUPS[:-1] if world == 2 else GROUPS:  # feeds have tests of their own for any number of ranks
                ranks = launch_once(world, train_all, cases=list(group))
                self[world].update({case: [of_rank[case] for of_rank in ranks] for case in group})
            return self[world]

    return Together()


ON_FOUR = [pytest.param(case, 4, marks=pytest.mark.slow) for case in CASES]


@pytest.mark.parametrize(("case", "world"), [*ON_FOUR, *((case, 2) for case in OPTIMIZERS | LOSSES)])
def test_several_ranks_train_as_one(trained, case, world):
    (alone,), together = trained[1][case], trained[world][case]
    for of_rank in together:
        assert difference(of_rank, alone) <= ROUNDING
        assert of_rank["losses"] == pytest.approx(alone["losses"], rel=1e-4, abs=1e-6)
        assert of_rank["steps"] == alone["steps"]
    assert logged_losses(together[0]["run"]) == pytest.approx(logged_losses(alone["run"]), rel=1e-4, abs=1e-6)


def test_training_does_something(trained):
    losses = {case: alone["losses"] for case, (alone,) in trained[1].items()}
    assert [case for case, of in losses.items() if sum(of[-5:]) >= 0.98 * sum(of[:5])] == []


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("world", "micro_batch"), [(2, 3), (1, 4)])
def test_slices_train_as_whole_batches_do(launch, trained, world, micro_batch):
    for sliced in launch(world, train_all, cases=SLICED, micro_batch=micro_batch):
        for case in SLICED:
            assert difference(sliced[case], trained[1][case][0]) <= ROUNDING, case


@pytest.mark.slow
def test_all_ranks_have_the_same_bits(trained):
    for case, (first, *others) in trained[4].items():
        for other in others:
            assert are_the_same_bits(other, first), case
            assert other["losses"] == first["losses"], case


def test_a_parameter_that_no_rank_uses_stays_as_it_was(trained):
    first = trained[2]["a branch, AdamW"][0]
    start = Branches().unused  # drawn after the net, with its seed: as on the first rank
    assert torch.equal(first["weights"]["unused.weight"], start.weight)


def masks():
    """Which numbers each rank drops in its first step."""
    seen = []

    class Watched(nn.Dropout):
        def forward(self, x):
            out = super().forward(x)
            seen.append(out.detach() == 0)
            return out

    ones = torch.ones(64, 6)
    train(data=brim.Loader((ones, torch.ones(64, 1)), 64), model=net(Watched(0.5)), max_steps=1)
    return seen[0]


def test_ranks_drop_different_numbers(launch):
    dropped = launch(4, masks)
    for one in range(4):
        for other in range(one):
            assert not torch.equal(dropped[one], dropped[other])
