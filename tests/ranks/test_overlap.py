"""Gradients sent while the backward pass runs: the same bits as sent after it, and nobody waits for one who failed."""

import pytest
import torch
import torch.distributed as dist
from rank_training import ROUNDING, Branches, are_the_same_bits, columns, difference, this_rank, train
from torch import nn
from torch.utils.checkpoint import checkpoint

from brim.engine.distributed import buckets, overlap
from brim.engine.step import replicated_step

STEPS = 9
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"


class Counts:
    """How steps were made on this rank."""

    def __init__(self):
        self.overlapped = self.redone = self.sent_early = 0


def watch(small=True):
    """Count, and make buckets small enough for there to be several."""
    found = Counts()
    if small:
        buckets.BUCKET_BYTES = 300
    finish, arrived = replicated_step.ReplicatedStep.finish_overlapped, overlap.Overlap.arrived

    def counted(self, own):
        reduced = finish(self, own)
        found.overlapped += reduced is not None
        found.redone += reduced is None
        return reduced

    def counted_arrival(self, parameter):
        before = self._next
        arrived(self, parameter)
        found.sent_early += self._next - before

    replicated_step.ReplicatedStep.finish_overlapped, overlap.Overlap.arrived = counted, counted_arrival
    return found


def deep():
    torch.manual_seed(1 + this_rank())
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def train_in_lane(calm, **settings):
    """``calm``: steps before gradients are sent while they are computed."""
    replicated_step.OVERLAP_AFTER = calm
    counts = watch()
    found = train(columns(17), deep(), optimizer=momentum, clip_norm=0.7, max_steps=STEPS, **settings)
    return {**found, **vars(counts)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "settings"), [(3, {}), (2, {"gradient_accumulation_steps": 3}), (2, {"micro_batch": 2})], ids=str
)
def test_both_ways_come_to_the_same_bits(launch, world, settings):
    early, late = launch(world, train_in_lane, calm=3, **settings), launch(world, train_in_lane, calm=999, **settings)
    for one, other in zip(early, late, strict=True):
        assert one["overlapped"] == STEPS - 3 and one["redone"] == 0 and one["sent_early"] > STEPS
        assert other["overlapped"] == 0
        assert are_the_same_bits(one, other)


class Fails(torch.autograd.Function):
    """Runs out in the backward pass of one rank: once, at the given call."""

    calls = 0

    @staticmethod
    def forward(context, x, rank, call):
        Fails.calls += 1
        context.strikes = this_rank() == rank and Fails.calls == call
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if context.strikes:
            raise torch.OutOfMemoryError(FULL)
        return gradient, None, None


class Unlucky(nn.Module):
    def __init__(self, rank, call, place):
        super().__init__()
        self.net = deep()
        self.rank, self.call, self.place = rank, call, place

    def forward(self, x):
        for number, layer in enumerate(self.net):
            if number == self.place:
                x = Fails.apply(x, self.rank, self.call)
            x = layer(x)
        return x


def train_unlucky(rank, call, place):
    counts = watch()
    found = train(columns(17), Unlucky(rank, call, place), optimizer=momentum, max_steps=STEPS)
    return {**found, **vars(counts)}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("place", [1, 2, 4], ids=["the end of the pass", "its middle", "its beginning"])
def test_a_rank_that_fails_half_way_is_waited_for_by_nobody(launch, place):
    expected = launch(1, train_unlucky, rank=-1, call=0, place=place)[0]
    for found in launch(3, train_unlucky, rank=1, call=7, place=place):
        assert found["redone"] == 1 and found["overlapped"] > 0
        assert difference(found, expected) <= ROUNDING
        assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)


class Twice(nn.Module):
    """Checkpointing of the old kind runs a backward pass within the backward pass: gradients come in several times."""

    def __init__(self):
        super().__init__()
        self.net = deep()

    def forward(self, x):
        x = self.net[:2](x)
        x = checkpoint(self.net[2:4], x, use_reentrant=True) + checkpoint(self.net[2:4], 2 * x, use_reentrant=True)
        return self.net[4](x)


def train_twice():
    counts = watch()
    return {**train(columns(17), Twice(), optimizer=momentum, max_steps=STEPS), **vars(counts)}


def test_gradients_that_come_after_they_were_sent_are_noticed_by_all(launch):
    expected = launch(1, train_twice)[0]
    for found in launch(2, train_twice):
        assert difference(found, expected) <= ROUNDING
        assert found["redone"] <= 1


def train_sometimes():
    counts = watch()
    settings = {"loss_fn": None, "optimizer": "AdamW", "max_steps": 20}
    return {**train(columns(17), Branches(), **settings), **vars(counts)}


def test_parameters_without_a_gradient_stay_so(launch):
    """AdamW would let the weights of the unused part decay if it saw gradients of zero."""
    expected = launch(1, train_sometimes)[0]
    for found in launch(3, train_sometimes):
        assert found["overlapped"] > 0
        assert difference(found, expected) <= 1e-4
        assert torch.equal(found["weights"]["unused.weight"], expected["weights"]["unused.weight"])


def halves():
    model = nn.Linear(4, 2).to(torch.bfloat16)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    found = buckets.Bucket(buckets.in_buckets(list(model.parameters()))[0])
    found.fill(1000.0)
    dist.init_process_group("gloo")
    dist.all_reduce(found.flat)
    found.hand_out(1 / 2001.0, {id(parameter) for parameter in model.parameters()})
    return found.flat.dtype, model.weight.grad[0, 0].item(), model.weight.grad.dtype


def test_gradients_of_sixteen_bits_are_added_up_in_more(launch):
    for carried, value, kept in launch(2, halves):
        assert carried is torch.float32 and kept is torch.bfloat16
        assert value == pytest.approx(3.0, rel=4e-3)


def test_neighbours_share_a_bucket_as_long_as_there_is_room(monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 40)
    parameters = [nn.Parameter(torch.zeros(size)) for size in (5, 5, 20, 3)]
    parameters.append(nn.Parameter(torch.zeros(2, dtype=torch.float64)))
    found = buckets.in_buckets(parameters)
    assert [[p.numel() for p in group] for group in found] == [[2], [3], [20], [5, 5]]
