"""A captured step trains what the eager one trains: optimizers, layers, batches, precisions and schedules."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

import brim

pytestmark = pytest.mark.gpu
LR = 2.0**-10  # exact as a double on the host and as a float on the device
CLOSE = 1e-5  # what rounding may change in fp32; kernels that are the same give the same bits
HALF = 1e-3  # where activations have 8 or 11 bits


def grouped(parameters):
    """Weight decay for matrices only, and another learning rate for the rest."""
    parameters = list(parameters)
    matrices, rest = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0, "lr": LR / 2}]
    return torch.optim.AdamW(groups, lr=LR, fused=True)


FUSED = {
    "Adam": lambda p: torch.optim.Adam(p, lr=LR, fused=True),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, lr=LR, amsgrad=True, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=LR, weight_decay=0.1, fused=True),
    "AdamW in groups": grouped,
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, fused=True),
}
UNFUSED = {
    "Adam": lambda p: torch.optim.Adam(p, lr=LR),
    "Adam one by one": lambda p: torch.optim.Adam(p, lr=LR, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=LR, weight_decay=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=LR),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9),
    "SGD Nesterov": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD dampened": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, dampening=0.5),
}
RARER = {
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=LR),
    "Adagrad with decay": lambda p: torch.optim.Adagrad(p, lr=LR, lr_decay=0.1),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=LR),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=LR, t0=5),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=LR),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=LR),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=LR, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("optimizer", FUSED.values(), ids=FUSED)
def test_fused_optimizers_give_the_same_bits(twins, optimizer):
    eager, captured = twins(twins.mlp, twins.rows(), optimizer=optimizer)
    assert captured.is_accounted_for
    assert captured.equals(eager)
    assert captured.losses == eager.losses


@pytest.mark.parametrize("optimizer", UNFUSED.values(), ids=UNFUSED)
def test_other_optimizers_train_the_same(twins, optimizer):
    eager, captured = twins(twins.mlp, twins.rows(), optimizer=optimizer)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


@pytest.mark.parametrize("optimizer", RARER.values(), ids=RARER)
def test_rarer_optimizers_are_captured_right_or_refused(twins, optimizer):
    eager, tried = twins(twins.mlp, twins.rows(), "auto", optimizer=optimizer)
    assert tried.differs_from(eager) <= CLOSE
    assert tried.report.captured or tried.report.reason


def test_dropout_draws_the_numbers_of_the_eager_step_and_new_ones_each_time(twins):
    eager, captured = twins(lambda: twins.mlp(nn.Dropout(0.5)), twins.rows(), optimizer=FUSED["Adam"])
    assert captured.is_accounted_for
    assert captured.equals(eager)
    assert torch.equal(captured.random, eager.random)


def test_dropout_masks_do_not_repeat(twins):
    """A model that learns nothing, on one batch: its losses differ by the mask alone."""
    batches = [twins.rows(32)] * 40
    still = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.0), "epochs": 1}
    found = twins.train(lambda: twins.mlp(nn.Dropout(0.5)), lambda: batches, "require", **still)
    assert found.is_accounted_for
    assert len(set(found.losses)) == 40


def test_batch_norm_keeps_its_statistics_and_counts_each_step_once(twins):
    eager, captured = twins(lambda: twins.mlp(nn.BatchNorm1d(64)), twins.rows())
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE
    mine, theirs = (dict(one.model.named_buffers()) for one in (captured, eager))
    assert int(mine["2.num_batches_tracked"]) == int(theirs["2.num_batches_tracked"]) == len(eager.losses)
    for name in theirs:
        assert torch.allclose(mine[name].float(), theirs[name].float(), rtol=1e-5, atol=1e-6), name


@pytest.mark.parametrize("samples", [641, 650, 671])
def test_an_odd_last_batch_counts_like_any_other(twins, samples):
    eager, captured = twins(twins.mlp, twins.rows(samples), epochs=6)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


def test_shapes_that_come_again_and_again_are_all_right(twins):
    x, y = twins.rows(1920)
    lengths = [32, 48, 16] * 20
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    batches = [(x[a : a + n], y[a : a + n]) for a, n in zip(starts, lengths, strict=True)]
    eager, tried = twins(twins.mlp, lambda: batches, "auto")
    assert tried.differs_from(eager) <= CLOSE
    assert tried.report.replays > 0


class Two(nn.Module):
    """Numbers and ids in, through a table and a network."""

    def __init__(self):
        super().__init__()
        self.table, self.net = nn.Embedding(50, 16), Tower()

    def calculate_loss(self, batch):
        found = self.net(batch["x"] + self.table(batch["ids"]))
        return (batch["weight"] * (found - batch["y"]).square()).mean()


class Tower(nn.Module):
    def __init__(self, out=1):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, out))

    def forward(self, x):
        return self.layers(x)


def test_batches_may_be_dictionaries_of_several_inputs(twins):
    x, y = twins.rows()
    ids = torch.arange(640) % 50
    data = {"x": x, "ids": ids, "weight": torch.rand(640, 1, generator=torch.Generator().manual_seed(3)), "y": y}
    eager, captured = twins(Two, data, loss_fn=None)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


class Tied(nn.Module):
    """An autoencoder whose decoder is its encoder, turned round."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(self.inner(x).tanh()).sum(1, keepdim=True)


class HalfFrozen(Tower):
    def __init__(self):
        super().__init__()
        self.layers[0].requires_grad_(False)


class Adapted(nn.Module):
    """A frozen layer with a low-rank addition that is trained."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(16, 16), nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return (self.base(x) + self.up(self.down(x))).sum(1, keepdim=True)


class PartlyUsed(Tower):
    """Has a layer that no batch reaches."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(3, 3)


@pytest.mark.parametrize("model", [Tied, HalfFrozen, Adapted, PartlyUsed])
def test_weights_that_are_shared_frozen_or_not_reached_stay_what_they_are(twins, model):
    eager, captured = twins(model, twins.rows(), optimizer=FUSED["AdamW"])
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE
    torch.manual_seed(1)
    new = model()
    for name, parameter in captured.model.named_parameters():
        moved = not torch.equal(parameter.cpu(), new.get_parameter(name))
        assert moved == (parameter.requires_grad and "unused" not in name), name


def step_by_step(optimizer):
    return LambdaLR(optimizer, lambda step: 1.0 / (1 + step % 7))


@pytest.mark.parametrize("optimizer", [FUSED["Adam"], UNFUSED["Adam"], UNFUSED["SGD momentum"]])
@pytest.mark.parametrize(
    "scheduler",
    [
        step_by_step,
        lambda optimizer: OneCycleLR(optimizer, max_lr=0.01, total_steps=60, cycle_momentum=False),
        {"name": "cosine", "warmup": 20},
    ],
    ids=["by step", "one cycle", "cosine"],
)
def test_the_learning_rate_may_change_at_every_step(twins, optimizer, scheduler):
    eager, captured = twins(twins.mlp, twins.rows(), optimizer=optimizer, scheduler=scheduler)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE
    rates = [float(one.optimizer.param_groups[0]["lr"]) for one in (captured, eager)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-6)


@pytest.mark.parametrize("optimizer", [FUSED["Adam"], UNFUSED["SGD momentum"]], ids=["Adam", "SGD"])
def test_a_schedule_that_also_moves_betas_or_momentum_is_followed_or_refused(twins, optimizer):
    settings = {"scheduler": lambda made: OneCycleLR(made, max_lr=0.01, total_steps=60)}
    eager, tried = twins(twins.mlp, twins.rows(), "auto", optimizer=optimizer, **settings)
    assert tried.differs_from(eager) <= CLOSE


@pytest.mark.parametrize("clip_norm", [0.01, 1.0, 1e6], ids=["always", "sometimes", "never"])
def test_gradients_are_clipped_by_their_own_norm(twins, clip_norm):
    eager, captured = twins(twins.mlp, twins.rows(), clip_norm=clip_norm)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_accumulation_steps": 3},
        {"micro_batch": 8},
        {"micro_batch": 10},
        {"gradient_accumulation_steps": 4, "micro_batch": 16, "clip_norm": 0.5},
    ],
    ids=["accumulated", "sliced", "sliced unevenly", "both, clipped"],
)
def test_windows_and_slices_are_captured_as_one_step(twins, settings):
    eager, captured = twins(twins.mlp, twins.rows(656), epochs=9, **settings)  # the last batch and window are short
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_mixed_precision_trains_the_same(twins, precision, clip_norm):
    eager, captured = twins(twins.mlp, twins.rows(), precision=precision, clip_norm=clip_norm)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= HALF


@pytest.mark.parametrize("scheduler", [None, step_by_step], ids=["constant", "scheduled"])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_an_overflow_in_the_middle_shrinks_the_scale_and_moves_nothing(twins, clip_norm, scheduler):
    x, y = twins.rows(1920)
    y[32 * 40 : 32 * 41] = 3e4  # the loss is finite; its gradient, scaled, is beyond fp16
    settings = {"precision": "fp16", "epochs": 1, "shuffle": False, "clip_norm": clip_norm, "scheduler": scheduler}
    eager, captured = twins(twins.mlp, (x, y), **settings)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= HALF
    scales = [one.trainer.precision.scaler.get_scale() for one in (captured, eager)]
    assert scales[0] == scales[1] < 65536.0


def test_unfused_optimizers_with_a_loss_scale_are_captured_right_or_refused(twins):
    eager, tried = twins(twins.mlp, twins.rows(), "auto", optimizer=UNFUSED["Adam"], precision="fp16")
    assert tried.differs_from(eager) <= HALF


def token_loss(model, batch):
    """Rows weigh differently, as sequences do; how much is known on the device only."""
    weight = (batch[0][:, :1] > 0).float() * 5 + 1
    return brim.Loss(((model(batch[0]) - batch[1]).square() * weight).sum(), weight.sum())


@pytest.mark.parametrize("settings", [{}, {"micro_batch": 8}, {"gradient_accumulation_steps": 2}])
def test_losses_with_counts_are_divided_by_what_is_counted(twins, settings):
    eager, captured = twins(twins.mlp, twins.rows(), loss_fn=token_loss, **settings)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE
    assert captured.losses == pytest.approx(eager.losses, rel=1e-4)


def test_targets_that_are_ignored_do_not_count(twins):
    x, _ = twins.rows()
    target = torch.where(x[:, 0] > 0.5, -100, (x[:, 1] > 0).long())
    eager, captured = twins(lambda: Tower(2), (x, target), loss_fn=nn.CrossEntropyLoss())
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 1)
        )

    def forward(self, x):
        return self.layers(x.view(-1, 1, 4, 4))


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.1, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.block(x.view(-1, 2, 8)).flatten(1))


@pytest.mark.parametrize("model", [Convolved, Attentive])
def test_convolutions_and_attention_train_the_same(twins, model):
    eager, captured = twins(model, twins.rows())
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-3  # their kernels may add in another order, and convolutions use TF32
