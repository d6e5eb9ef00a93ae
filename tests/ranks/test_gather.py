"""Losses that compare the samples of all ranks: with ``brim.gather`` they are those of one process, or that is said."""

import contextlib
import io
from functools import cache

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank_training import this_rank
from torch import nn

import brim
from brim.engine.trainer import run_now
from brim.errors import CannotFit, ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")
EXACT = 1e-11  # of weights in 64 bits, after STEPS
STEPS = 4
SAMPLES = 29  # in batches of 12: two of twelve, and one of five
WORLD = 3
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"
_generator = torch.Generator().manual_seed(0)
LEFT = torch.randn(SAMPLES, 6, generator=_generator, dtype=torch.float64)
RIGHT = torch.randn(SAMPLES, 5, generator=_generator, dtype=torch.float64)


class Pairs(nn.Module):
    """Two encoders and a temperature, as CLIP has them.

    ``most``: samples for which the ``victim`` (None: every rank) has memory; in the ``where`` "loss" it runs out once.
    """

    def __init__(self, most=None, victim=-1, where="forward"):
        super().__init__()
        torch.manual_seed(1)
        self.left = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.right = nn.Linear(5, 4)
        self.scale = nn.Parameter(torch.tensor([0.7]))  # which could be sharded
        self.most, self.is_victim, self.where = most, victim is None or this_rank() == victim, where
        self.times = 1
        self.sizes = []
        self.double()

    def encode(self, batch):
        left, right = batch
        self.sizes.append(len(left))
        short = self.training and self.is_victim and self.most is not None and len(left) > self.most
        if short and self.where == "forward":
            raise torch.OutOfMemoryError(FULL)
        encoded = F.normalize(self.left(left), dim=1)
        if short and self.where == "backward" and encoded.requires_grad:
            encoded.register_hook(_run_out)
        return encoded, F.normalize(self.right(right), dim=1)

    def run_out_in_loss(self):
        if self.is_victim and self.where == "loss" and self.times:
            self.times -= 1
            raise torch.OutOfMemoryError(FULL)

    def calculate_loss(self, batch):
        return gathered(*self.encode(batch), self)


def _run_out(gradient):
    raise torch.OutOfMemoryError(FULL)


def encode(model, batch):
    return model.encode(batch)


def contrast(left, right, model):
    found = left @ right.T * model.scale.exp()
    partner = torch.arange(len(found))
    return (F.cross_entropy(found, partner) + F.cross_entropy(found.T, partner)) / 2


def gathered(left, right, model):
    left = brim.gather(left)
    if dist.is_initialized() and len(left) > 8:  # on trial there are fewer
        model.run_out_in_loss()
    return contrast(left, brim.gather(right), model)


def in_one_loss(model, batch):
    left, right = model.encode(batch)
    return gathered(left, right, model)


def fit(loss_fn, model=None, batch_size=12, **settings):
    model = model or Pairs()
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        trainer = brim.Trainer(
            model, brim.Loader((LEFT, RIGHT), batch_size, drop_last=settings.pop("drop_last", False)),
            loss_fn=loss_fn, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.5),
            device="cpu", threads=1, checkpoint_every=1_000, **{"max_steps": STEPS, **settings},
        )  # fmt: skip
        trainer.fit()
    weights = torch.cat([value.flatten() for value in model.state_dict().values()])
    return {
        "weights": weights,
        "said": said.getvalue(),
        "sizes": model.sizes,
        "step": run_now(trainer).guard.micro_batch,
    }


def off(one, other):
    return float((one["weights"] - other["weights"]).norm() / other["weights"].norm())


LOSSES = {
    "gathered": brim.TwoPass(encode, gathered),
    "alone": brim.TwoPass(encode, contrast),
    "one": in_one_loss,
}


def on_ranks(trainings):
    """One training after the other: the name of its loss, arguments of its model, and settings."""
    return [fit(LOSSES[kind], Pairs(**model), **settings) for kind, model, settings in trainings]


SETTINGS = [
    {},
    {"micro_batch": 2},
    {"batch_size": 2},
    {"batch_size": 4, "micro_batch": 1},
    {"batch_size": 2, "gradient_accumulation_steps": 3},
    {"micro_batch": 3, "clip_norm": 0.1},
]


@cache
def of_one_process():
    return [fit(LOSSES["alone"], **{**one, "micro_batch": "auto"}) for one in SETTINGS]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("world", [3, 2])
def test_gathered_ranks_train_as_one_process_with_the_joined_batch(launch, world):
    """Uneven last batches; batches of two, of which a third rank has no sample; windows of several batches."""
    found = launch(world, on_ranks, trainings=[("gathered", {}, one) for one in SETTINGS])
    for of_rank in found:
        assert max(map(off, of_rank, of_one_process())) <= EXACT
    said = [one["said"] for one in found[0]]
    assert ["another training" in one for one in said] == [False, False, False, False, True, False]
    assert "accumulated over 3 batches" in said[4] and "3 times as large is exact" in said[4]


@pytest.mark.slow
def test_a_loss_of_one_function_gathers_as_well(launch):
    settings = {"drop_last": True}
    expected = fit(lambda model, batch: contrast(*model.encode(batch), model), **settings)
    for (found,) in launch(2, on_ranks, trainings=[("one", {}, settings)]):
        assert off(found, expected) <= EXACT and "another training" not in found["said"]


def test_without_gather_a_warning_names_it(launch):
    for (found,) in launch(2, on_ranks, trainings=[("alone", {}, {"max_steps": 2})])[:1]:
        assert "2 ranks each compute a part of the batch" in found["said"] and "brim.gather(tensor)" in found["said"]


SHORTAGES = [
    {"most": 3, "victim": 1},
    {"most": 2, "victim": 0, "where": "backward"},
    {"most": 2, "victim": None},
    {"most": 2, "victim": 1, "where": "loss"},
]


def test_memory_that_runs_out_on_one_rank_lets_all_go_on_with_as_many_micro_batches(launch):
    expected = fit(LOSSES["alone"])
    found = launch(WORLD, on_ranks, trainings=[("gathered", model, {}) for model in SHORTAGES])
    for number, model in enumerate(SHORTAGES):
        of_ranks = [of_rank[number] for of_rank in found]
        assert max(off(one, expected) for one in of_ranks) <= EXACT
        assert len({one["step"] for one in of_ranks}) == 1 and of_ranks[0]["step"] is not None
        assert model.get("where") == "loss" or of_ranks[0]["step"] <= model["most"]
        assert "on rank" in of_ranks[0]["said"] and "all ranks" in of_ranks[0]["said"]
        assert "out of memory" not in of_ranks[1]["said"] + of_ranks[2]["said"]


def too_much():
    """What a loss that cannot be split ends with."""
    with pytest.raises(CannotFit) as ended:
        fit(in_one_loss, Pairs(most=3, victim=1), drop_last=True)
    return str(ended.value)


def test_a_loss_that_cannot_be_split_ends_on_all_ranks(launch):
    for said in launch(2, too_much):
        assert "on rank 1" in said and "the batch stays whole" in said and "brim.TwoPass(encode, loss)" in said


def refusals():
    """What each of some trainings is refused with."""

    def in_encode(model, batch):
        left, right = model.encode(batch)
        return brim.gather(left), right

    def on_the_first(left, right, model):
        return gathered(left, right, model) if this_rank() == 0 else contrast(left, right, model)

    tried = [
        (brim.TwoPass(in_encode, contrast), {}), (in_one_loss, {"batch_size": 1}), (in_one_loss, {"micro_batch": 2}),
        (brim.TwoPass(encode, on_the_first), {}), (LOSSES["gathered"], {"strategy": "fsdp"}),
        (None, {"strategy": "fsdp"}),
    ]  # fmt: skip
    said = []
    for loss_fn, settings in tried:
        try:
            fit(loss_fn, Pairs(), **settings)
        except ConfigError as error:
            said.append(str(error))
    return said


def test_what_ranks_cannot_do_together_is_refused_on_all_of_them(launch):
    for said in launch(2, refusals):
        assert len(said) == 6
        assert "gather what it returns, in loss" in said[0]
        assert "a rank has no sample of this batch" in said[1] and "brim.TwoPass" in said[1]
        assert "micro_batch=2 and brim.gather go together in brim.TwoPass" in said[2]
        assert "do not call brim.gather alike" in said[3]
        assert "brim.TwoPass" in said[4] and "strategy='ddp'" in said[4]
        assert "strategy='ddp'" in said[5]


def plainly():
    """Outside of brim's steps, with a process group of the program's own."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    own = torch.arange(rank * 2 + 1, dtype=torch.float64)[:, None].requires_grad_()
    joined = brim.gather(own)
    (joined.square().sum() * (rank + 1)).backward()
    labels = brim.gather(torch.full((rank,), rank))
    halves = brim.gather(torch.full((1, 2), float(rank), dtype=torch.bfloat16))
    dist.destroy_process_group()
    return joined.detach().flatten().tolist(), own.grad.flatten().tolist(), labels.tolist(), halves.tolist()


def test_outside_of_a_step_it_is_a_plain_differentiable_all_gather(launch):
    for rank, (joined, gradient, labels, halves) in enumerate(launch(2, plainly)):
        assert joined == [0, 0, 1, 2] and labels == [1]
        assert gradient == [2 * 3 * float(number) for number in range(rank * 2 + 1)]  # both ranks' losses: 1 + 2
        assert halves == [[0, 0], [1, 1]]


def test_evaluation_is_of_whole_batches_and_prediction_of_encodings(launch):
    def expected():
        trainer = brim.Trainer(Pairs(), (LEFT, RIGHT), loss_fn=LOSSES["alone"], device="cpu")
        return trainer.evaluate(brim.Loader((LEFT, RIGHT), 12))["loss"]

    for loss, rows in launch(2, evaluated):
        assert loss == pytest.approx(expected(), rel=1e-6) and rows == [(SAMPLES, 4), (SAMPLES, 4)]


def evaluated():
    trainer = brim.Trainer(Pairs(), (LEFT, RIGHT), loss_fn=LOSSES["gathered"], device="cpu")
    outputs = trainer.predict(brim.Loader((LEFT, RIGHT), 12, shuffle=False))
    return trainer.evaluate(brim.Loader((LEFT, RIGHT), 12))["loss"], [tuple(part.shape) for part in outputs]
