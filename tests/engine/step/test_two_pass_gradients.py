"""A loss across the batch in two passes: the training of the whole batch, or a sentence that says why not."""

import copy
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers.faults import Above, Gate
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

import brim
from brim.errors import CannotFit, ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")
EXACT = 1e-11  # of weights in 64 bits
_generator = torch.Generator().manual_seed(0)
LEFT = torch.randn(26, 6, generator=_generator, dtype=torch.float64)
RIGHT = torch.randn(26, 5, generator=_generator, dtype=torch.float64)
BATCHES = list(zip(LEFT.split(10), RIGHT.split(10), strict=True))  # 10, 10 and 6


class Pairs(nn.Module):
    """Two encoders and a temperature, as CLIP has them; ``middle`` makes a module within the first."""

    def __init__(self, middle=nn.Identity):
        super().__init__()
        torch.manual_seed(1)
        self.left = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), middle(), nn.Linear(8, 4))
        self.right = nn.Linear(5, 4)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.double()


def encode(model, batch):
    return F.normalize(model.left(batch[0]), dim=1), F.normalize(model.right(batch[1]), dim=1)


def contrast(left, right, model):
    found = left @ right.T * model.scale.exp()
    partner = torch.arange(len(found))
    return (F.cross_entropy(found, partner) + F.cross_entropy(found.T, partner)) / 2


CLIP = brim.TwoPass(encode, contrast)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.5)


def weights(model):
    return torch.cat([value.double().flatten() for value in model.state_dict().values()])


def off(model, other):
    return float((weights(model) - weights(other)).norm() / weights(other).norm())


def plain(model, loss_fn, batches=BATCHES, accumulation=1):
    """The loop by hand, over whole batches."""
    optimizer = sgd([p for p in model.parameters() if p.requires_grad])
    for start in range(0, len(batches), accumulation):
        window = batches[start : start + accumulation]
        samples = sum(len(batch[0]) for batch in window)
        optimizer.zero_grad()
        for batch in window:
            (loss_fn(model, batch) * len(batch[0]) / samples).backward()
        optimizer.step()
    return model


def fit(model, loss_fn=CLIP, data=BATCHES, **settings):
    trainer = brim.Trainer(
        model,
        data,
        loss_fn=loss_fn,
        optimizer=sgd,
        device="cpu",
        threads=1,
        checkpoint_every=1000,
        **settings,
    )
    trainer.fit()
    return model


def stepped(model, loss_fn=CLIP, micro_batch=3, batches=BATCHES, parameters=None, **settings):
    """The same in a loop of one's own, and what that was told."""
    said = []
    step = brim.Step(model, sgd(parameters or model.parameters()), loss_fn, micro_batch=micro_batch,
                     tell=said.append, **settings)  # fmt: skip
    for batch in batches:
        step(batch)
    return model, said


def told(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if "another training" in line or "cannot be" in line]


# Exact


@pytest.mark.parametrize("micro_batch", ["auto", 1, 3, 5, 10])
def test_micro_batches_train_as_the_whole_batch(micro_batch, capsys):
    assert off(fit(Pairs(), micro_batch=micro_batch), plain(Pairs(), CLIP)) <= EXACT
    assert not told(capsys)


def test_accumulated_batches_are_each_compared_within_themselves(capsys):
    expected = plain(Pairs(), CLIP, accumulation=2)
    assert off(fit(Pairs(), micro_batch=4, gradient_accumulation_steps=2), expected) <= EXACT
    (said,) = told(capsys)
    assert "accumulated over 2 batches" in said and "2 times as large is exact" in said


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_shortage_of_memory_lets_it_go_on_in_micro_batches(where, capsys):
    model = Pairs(lambda: Gate(Above(3), where))
    assert off(fit(model), plain(Pairs(), CLIP)) <= EXACT
    said = capsys.readouterr().err
    assert "going on with micro-batches of 3 (the batch stays 10)" in said and "another training" not in said


def of_dict(model, batch):
    left, right = encode(model, batch)
    return {"left": left, "right": right, "names": torch.arange(len(left))}


def counted(left, right, names, model):
    return {"loss": brim.Loss(contrast(left, right, model) * len(names), len(names)), "scale": model.scale}


class Criterion(nn.Module):
    """A loss with parameters of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, left, right):
        return contrast(left, right, self)


def with_scale(model, batch):
    return (*encode(model, batch), model.scale)


def by_scale(left, right, scale):
    found = left @ right.T * scale.exp()
    return F.cross_entropy(found, torch.arange(len(found)))


def of_one(model, batch):
    return encode(model, batch)[0]


def spread(left):
    return (left @ left.T).exp().mean().log()


FORMS = {
    "dict and brim.Loss": brim.TwoPass(of_dict, counted),
    "a tensor without dimensions": brim.TwoPass(with_scale, by_scale),
    "one tensor": brim.TwoPass(of_one, spread),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_outputs_and_losses_is_exact(name):
    loss_fn = FORMS[name]

    def by_hand(model, batch):
        found = loss_fn(model, batch)
        found = found["loss"] if isinstance(found, dict) else found
        return found.mean if isinstance(found, brim.Loss) else found

    model, said = stepped(Pairs(), loss_fn)
    assert off(model, plain(Pairs(), by_hand)) <= EXACT
    assert not said


def test_a_criterion_with_parameters_of_its_own_is_trained_where_the_optimizer_holds_them():
    def trained(micro_batch):
        model, criterion = Pairs(), Criterion()
        parameters = [*model.parameters(), *criterion.parameters()]
        stepped(model, brim.TwoPass(encode, criterion), micro_batch, parameters=parameters)
        return torch.cat([weights(model), weights(criterion)])

    assert (trained(3) - trained(None)).norm() <= EXACT * trained(None).norm()
    with pytest.raises(ConfigError, match=r"loss_fn.loss.parameters\(\)"):
        fit(Pairs(), brim.TwoPass(encode, Criterion()))


def test_a_dry_run_leaves_a_criterion_as_it_was():
    criterion, model = Criterion(), Pairs()
    trainer = brim.Trainer(
        model, BATCHES, loss_fn=brim.TwoPass(encode, criterion), device="cpu", threads=1, fast_dev_run=True,
        optimizer=lambda parameters: sgd([*parameters, *criterion.parameters()]),
    )  # fmt: skip
    trainer.fit()
    assert torch.equal(weights(criterion), weights(Criterion())) and off(model, Pairs()) == 0


@pytest.mark.parametrize("frozen", ["left", "right", "both"])
def test_frozen_encoders_stay_as_they_are(frozen):
    def made():
        model = Pairs()
        for name in ("left", "right") if frozen == "both" else (frozen,):
            getattr(model, name).requires_grad_(False)
        return model

    assert off(stepped(made())[0], plain(made(), CLIP)) <= EXACT


class Checkpointed(nn.Module):
    """Activations are computed again in the backward pass, with the same draws."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


class Momentum(nn.Module):
    """A slow copy that follows the weights, as MoCo has it: state that is moved in the forward pass."""

    def __init__(self):
        super().__init__()
        self.fast = nn.Linear(8, 8)
        self.slow = copy.deepcopy(self.fast).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.fast.parameters(), strict=True):
                slow.lerp_(fast, 0.3)
        return self.fast(x) - self.slow(x)


@pytest.mark.parametrize(
    "middle", [lambda: spectral_norm(nn.Linear(8, 8)), Momentum], ids=["spectral norm", "momentum"]
)
def test_state_that_follows_the_weights_is_moved_once(middle):
    model, said = stepped(Pairs(middle))
    assert off(model, plain(Pairs(middle), CLIP)) <= EXACT
    assert not said


def test_state_that_the_loss_moves_is_kept():
    def made():
        model = Pairs()
        model.register_buffer("queue", torch.zeros(4, 4, dtype=torch.float64))
        return model

    def loss(left, right, model):
        found = by_scale(left, torch.cat([right, model.queue]), model.scale)
        with torch.no_grad():
            model.queue.copy_(right[:4])
        return found

    moco = brim.TwoPass(encode, loss)
    assert off(stepped(made(), moco)[0], plain(made(), moco)) <= EXACT


# Random draws


@pytest.mark.parametrize("middle", [lambda: nn.Dropout(0.5), Checkpointed], ids=["dropout", "recomputed dropout"])
def test_both_passes_draw_the_same_and_the_next_step_draws_on(middle):
    """Micro-batches by hand, each with the draws that it had, and one graph for all of them."""

    def by_hand(model, batch):
        parts = [encode(model, part) for part in zip(*(column.split(5) for column in batch), strict=True)]
        return contrast(*(torch.cat(column) for column in zip(*parts, strict=True)), model)

    batches, expected, model = BATCHES[:2], Pairs(middle), Pairs(middle)
    torch.manual_seed(2)
    plain(expected, by_hand, batches)
    torch.manual_seed(2)
    stepped(model, micro_batch=5, batches=batches, sliceable=True)
    assert off(model, expected) <= EXACT


def test_a_second_pass_that_computes_something_else_is_refused():
    generator = torch.Generator().manual_seed(0)

    def noisy(model, batch):
        left, right = encode(model, batch)
        return left + torch.randn(left.shape, generator=generator, dtype=left.dtype), right

    with pytest.raises(ConfigError, match="something else when it is computed a second time"):
        stepped(Pairs(), brim.TwoPass(noisy, contrast), sliceable=True)


# What micro-batches cannot keep


def test_a_batch_norm_in_the_encoder_is_warned_about():
    _, said = stepped(Pairs(lambda: nn.BatchNorm1d(8)), micro_batch=4)
    assert any("BatchNorm" in line and "another training" in line for line in said)


def centred(model, batch):
    left, right = encode(model, batch)
    return left - left.mean(0), right


def test_an_encode_that_mixes_samples_is_warned_about_or_stays_whole():
    _, (said,) = stepped(Pairs(), brim.TwoPass(centred, contrast), micro_batch=4)
    assert "encode computes the samples of a batch from one another" in said and "sliceable=True" in said
    with pytest.raises(CannotFit, match=r"from one another.*the batch stays whole"):
        stepped(Pairs(lambda: Gate(Above(3))), brim.TwoPass(centred, contrast), micro_batch=None)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda left, right: (left.T, right), r"shape \(4, 2\) for 2 samples"),
        (lambda left, right: (left, right.sum()), "something else for another"),
        (lambda left, right: (left, right, len(left)), "something else for another"),
    ],
)  # fmt: skip
def test_outputs_that_are_not_of_samples_are_refused(returned, said):
    def odd(model, batch):
        return returned(*encode(model, batch))

    loss_fn = brim.TwoPass(odd, lambda *outputs: outputs[0].sum())
    with pytest.raises(ConfigError, match=said):
        stepped(Pairs(), loss_fn, batches=[(LEFT[:7], RIGHT[:7])], sliceable=True)


# Beside training


def test_numbers_that_encode_and_loss_log_are_means_over_the_batch():
    made = []

    def noting(model, batch):
        made[0].log("left", batch[0].mean())
        return encode(model, batch)

    def loss(left, right, model):
        made[0].log("rows", float(len(left)))
        return contrast(left, right, model)

    made.append(
        brim.Trainer(
            Pairs(), [BATCHES[0]], loss_fn=brim.TwoPass(noting, loss), device="cpu", threads=1, micro_batch=4,
            run_dir="run", log_every=1,
        )
    )  # fmt: skip
    made[0].fit()
    (line,) = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert line["rows"] == 10 and line["left"] == pytest.approx(float(LEFT[:10].mean()), rel=1e-4)


def test_evaluation_is_over_whole_batches_and_predictions_are_encodings():
    model = Pairs()
    trainer = brim.Trainer(model, BATCHES, BATCHES, loss_fn=CLIP, device="cpu", micro_batch=3)
    expected = sum(CLIP(model, batch).item() * len(batch[0]) for batch in BATCHES) / 26
    assert trainer.evaluate()["loss"] == pytest.approx(expected, rel=1e-6)
    left, right = trainer.predict(BATCHES)
    assert torch.allclose(left, encode(model, (LEFT, RIGHT))[0]) and right.shape == (26, 4)


def test_an_evaluation_that_runs_out_of_memory_encodes_in_micro_batches(capsys):
    def evaluated(gate):
        model = Pairs(lambda: gate)
        return brim.Trainer(model, BATCHES, loss_fn=CLIP, device="cpu").evaluate(BATCHES)["loss"]

    assert evaluated(Gate(Above(3), training=None)) == pytest.approx(evaluated(Gate()), rel=1e-6)
    assert "going on in micro-batches of 3" in capsys.readouterr().err


def test_bf16_autocast_has_gradients_in_both_passes():
    """Weights that autocast has cast without gradients in the first pass must not be used in the second."""
    batches = [tuple(column.float() for column in BATCHES[0])]
    found = [
        stepped(Pairs().float(), micro_batch=size, batches=batches, precision="bf16-mixed")[0] for size in (None, 5)
    ]
    moved = weights(found[0]) - weights(Pairs())
    assert (weights(found[0]) - weights(found[1])).norm() <= 2e-2 * moved.norm()


def test_weights_in_bfloat16_add_up_in_32_bits():
    found = [stepped(Pairs(), micro_batch=size, precision="bf16-true")[0] for size in (None, 1)]
    assert off(*found) <= 2e-2
