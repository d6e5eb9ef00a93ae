"""What a loss counts and what moves while it is computed: over ranks it is the training of one, or that is said."""

import contextlib
import copy
import io
from functools import cache

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import brim

STEPS, BATCH, LENGTH, VOCABULARY = 20, 8, 8, 40
GRADIENT, WEIGHTS, EXACT = 1e-5, 1e-3, 1e-5
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
PAIRS = [(x, x[:, :4] + 0.1) for x in X.split(16)] * 2


def gpt2():
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 1}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCABULARY, **size, **none))


def tagger():
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(vocab_size=VOCABULARY, num_labels=VOCABULARY, **SMALL, **none)
    return transformers.BertForTokenClassification(config)


def texts(step, in_order=False):
    """One optimisation batch: texts of very different lengths, perhaps the short ones first."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=generator)
    lengths = torch.randint(2, LENGTH + 1, (BATCH,), generator=generator)
    lengths = lengths.sort().values if in_order else lengths
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Linear(8, 8), nn.Linear(8, 4)
        self.slow = copy.deepcopy(self.a).requires_grad_(False)
        self.centre = nn.Module()
        self.centre.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        return self.c(torch.tanh(self.a(x)))


class Spectral(Net):
    def __init__(self):
        super().__init__()
        spectral_norm(self.a)


class Momentum(Net):
    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.a.parameters(), strict=True):
                slow.lerp_(fast, 0.3)
        return self.c(self.a(x) - self.slow(x))


class MovingMean(Net):
    def forward(self, x):
        x = self.a(x)
        self.centre.mean.lerp_(x.detach().mean(0), 0.1)
        return self.c(x - self.centre.mean)


class Constrained(Net):
    """As max_norm of an embedding: here each rank does the same."""

    def forward(self, x):
        with torch.no_grad():
            self.a.weight.clamp_(-0.2, 0.2)
        return super().forward(x)


class Warming(Net):
    """A schedule by a count of calls: each rank makes one of them for a batch."""

    calls = 0

    def forward(self, x):
        self.calls += self.training
        return super().forward(x) * (1 - 0.9**self.calls)


class Scaled(Net):
    """What it keeps in Python follows the data, of which each rank has its own part."""

    mean = 1.0

    def forward(self, x):
        x = self.a(x)
        self.mean = 0.9 * self.mean + 0.1 * float(x.detach().abs().mean())
        return self.c(x / self.mean)


class Hooked(Net):
    def __init__(self):
        super().__init__()
        self.a.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))


def contrastive(model, batch):
    one, two = F.normalize(model(batch[0]), dim=1), F.normalize(batch[1], dim=1)
    return F.cross_entropy(one @ two.T / 0.1, torch.arange(len(one)))


def mse(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


class Counted(Net):
    """Counts its steps, which a loss may change by."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps += self.training
        return super().forward(x)


def later_contrastive(model, batch):
    loss = mse(model, batch)
    return loss if model.steps < 3 else contrastive(model, batch)


def plain():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


SHORT = "gpt2, the short ones first"
LANGUAGE = {"gpt2": gpt2, "tagger": tagger, SHORT: gpt2}
NAMES = ["gpt2", "tagger", SHORT]
OTHERS = {
    "contrastive": (plain, contrastive),
    "a mean": (plain, mse),
    "frozen parts": (Net, mse),
    "spectral norm": (Spectral, mse),
    "momentum": (Momentum, mse),
    "moving mean": (MovingMean, mse),
    "warm-up": (Warming, mse),
    "mean in Python": (Scaled, mse),
    "contrastive later": (Counted, later_contrastive),
    "hook": (Hooked, mse),
    "constraint": (Constrained, mse),
}


def made(name):
    torch.manual_seed(0)
    return LANGUAGE[name]() if name in LANGUAGE else OTHERS[name][0]()


def data(name):
    return [texts(step, name == SHORT) for step in range(STEPS)] if name in LANGUAGE else PAIRS


def optimizer(name):
    kind, rate = (torch.optim.AdamW, 1e-3) if name in LANGUAGE else (torch.optim.SGD, 0.1)
    return lambda parameters: kind([p for p in parameters if p.requires_grad], lr=rate)


def numbers(tensors):
    return torch.cat([tensor.detach().double().flatten().cpu() for tensor in tensors])


class FirstGradient(brim.Callback):
    found = None

    def on_step_end(self, trainer, step, loss):
        if step == 1:
            self.found = numbers(p.grad for p in trainer.model.parameters() if p.requires_grad)


def trainings(names, strategy="ddp", **settings):
    """One training after the other: first gradient, weights and state, and what this rank said."""
    found = {}
    for name in names:
        model, first, said = made(name), FirstGradient(), io.StringIO()
        with contextlib.redirect_stderr(said):
            brim.Trainer(
                model, data(name), loss_fn=OTHERS[name][1] if name in OTHERS else None, optimizer=optimizer(name),
                device="cpu", threads=1, strategy=strategy, run_dir=f"run-{name}-{strategy}", checkpoint_every=10**6,
                callbacks=[] if strategy == "fsdp" else [first], **settings,
            ).fit()  # fmt: skip
        found[name] = (first.found, numbers(model.state_dict().values()), said.getvalue())
    return found


@cache
def alone(name):
    """The same by a loop written by hand."""
    model = made(name).train()
    start, stepping, first = numbers(model.state_dict().values()), optimizer(name)(model.parameters()), None
    for batch in data(name):
        stepping.zero_grad()
        (model(**batch).loss if name in LANGUAGE else OTHERS[name][1](model, batch)).backward()
        first = numbers(p.grad for p in model.parameters() if p.requires_grad) if first is None else first
        stepping.step()
    return first, start, numbers(model.state_dict().values())


@pytest.fixture(scope="module")
def over_two(launch_once):
    return launch_once(2, trainings, names=list(OTHERS))


@pytest.fixture(scope="module")
def language_over_two(launch_once):
    return launch_once(2, trainings, names=NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_logits_in_chunks_are_exact_over_ranks(launch, strategy):
    first, start, end = alone(SHORT)
    for of_rank in launch(2, trainings, names=[SHORT], strategy=strategy, logits="chunked"):
        found, weights, said = of_rank[SHORT]
        assert "saves nothing" not in said
        assert (weights - end).norm() <= 1e-3 * (end - start).norm()
        assert found is None or (found - first).norm() <= 1e-4 * first.norm()


@pytest.fixture(scope="module")
def in_shards(launch_once):
    return launch_once(2, trainings, names=["contrastive", "a mean", "frozen parts"], strategy="fsdp")


@pytest.fixture(scope="module")
def language_in_shards(launch_once):
    return launch_once(2, trainings, names=NAMES, strategy="fsdp")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_language_models_train_over_replicas_as_on_one(language_over_two, name):
    first, start, end = alone(name)
    for gradient, weights, _ in (of_rank[name] for of_rank in language_over_two):
        assert float((gradient - first).norm() / first.norm()) <= GRADIENT
        assert float((weights - end).norm() / (end - start).norm()) <= WEIGHTS


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_language_models_train_over_shards_as_on_one(language_in_shards, name):
    _, start, end = alone(name)
    for _, weights, _ in (of_rank[name] for of_rank in language_in_shards):
        assert float((weights - end).norm() / (end - start).norm()) <= WEIGHTS


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("contrastive", "looks across the batch"),
        ("contrastive later", "looks across the batch"),
        ("moving mean", "centre moves with the data"),
        ("mean in Python", "keeps in Python moves with the data"),
        ("hook", "the gradient hook of a.weight sees"),
        ("constraint", "the forward pass itself writes to a.weight"),
    ],
)
def test_what_ranks_change_is_said_once_by_the_first(over_two, name, said):
    first, second = (of_rank[name][2] for of_rank in over_two)
    assert (first.count(said), second.count(said)) == (1, 0)


@pytest.mark.parametrize("name", ["a mean", "spectral norm", "momentum", "frozen parts", "warm-up"])
def test_what_ranks_do_not_change_is_exact_and_nothing_is_said(over_two, name):
    _, _, end = alone(name)
    for _, weights, said in (of_rank[name] for of_rank in over_two):
        assert float((weights - end).norm() / end.norm()) <= EXACT
        assert "another training" not in said and "moves with" not in said


def with_an_extra_tensor(rows):
    """Samples of a part that has a marked one come with their numbers: another kind of batch, on one rank alone."""
    x = torch.stack(rows)
    return {"x": x, "y": x[:, :4]} if not (x[:, 0] > 1.5).any() else {"x": x, "y": x[:, :4], "extra": x[:, 0]}


def train_batches_of_two_kinds():
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    brim.Trainer(
        model, brim.Loader(list(X.flip(0)), 8, shuffle=False, collate_fn=with_an_extra_tensor, num_workers=0), epochs=2,
        loss_fn=lambda model, batch: F.mse_loss(model(batch["x"]), batch["y"]), device="cpu", threads=1,
        optimizer="SGD", lr=0.1,
    ).fit()  # fmt: skip
    return model.weight.detach().clone()


def test_a_kind_of_batches_that_comes_to_one_rank_alone_holds_nobody_up(launch):
    (end,) = launch(1, train_batches_of_two_kinds)
    for weights in launch(2, train_batches_of_two_kinds):
        assert float((weights - end).norm() / end.norm()) <= EXACT


def test_sliceable_silences_what_is_said_over_ranks(launch):
    for of_rank in launch(2, trainings, names=["contrastive"], sliceable=True):
        assert "looks across" not in of_rank["contrastive"][2]


def test_a_contrastive_loss_over_shards_is_warned_about_once(in_shards):
    first, second = (of_rank["contrastive"][2] for of_rank in in_shards)
    assert (first.count("looks across the batch"), second.count("looks across the batch")) == (1, 0)


@pytest.mark.parametrize("name", ["a mean", "frozen parts"])
def test_a_mean_and_a_model_with_frozen_parts_train_over_shards_as_on_one(in_shards, name):
    _, _, end = alone(name)
    for of_rank in in_shards:
        assert float((of_rank[name][1] - end).norm() / end.norm()) <= EXACT


# Evaluations


def evaluations(names):
    """Mean losses of models that were not trained, over batches of uneven sizes; or why there is none."""
    found = {}
    for name in names:
        uneven = [
            {k: v[a:b] for k, v in texts(s, name == SHORT).items()} for s in range(3) for a, b in ((0, 3), (3, 8))
        ]
        batches, said = PAIRS if name in OTHERS else uneven, io.StringIO()
        with contextlib.redirect_stderr(said):
            trainer = brim.Trainer(
                made(name), batches, loss_fn=OTHERS[name][1] if name in OTHERS else None, device="cpu", threads=1,
                run_dir=f"run-{name}",
            )  # fmt: skip
            try:
                value = trainer.evaluate(batches)["loss"]
            except brim.BrimError as error:
                value = str(error)
        found[name] = (value, said.getvalue())
    return found


def expected(name):
    model = made(name).eval()
    with torch.no_grad():
        if name in OTHERS:
            return sum(float(OTHERS[name][1](model, batch)) for batch in PAIRS) / len(PAIRS)
        whole = {key: torch.cat([texts(step, name == SHORT)[key] for step in range(3)]) for key in texts(0)}
        return float(model(**whole).loss)


@pytest.fixture(scope="module")
def evaluated(launch_once):
    return launch_once(2, evaluations, names=[*LANGUAGE, "contrastive"])


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", NAMES)
def test_the_mean_loss_of_an_evaluation_over_ranks_is_that_of_one(evaluated, name):
    for of_rank in evaluated:
        assert of_rank[name][0] == pytest.approx(expected(name), rel=1e-5)


def test_a_contrastive_evaluation_over_ranks_is_not_silently_another(evaluated):
    value, said = evaluated[0]["contrastive"]
    exact = not isinstance(value, str) and value == pytest.approx(expected("contrastive"), rel=1e-5)
    assert exact or isinstance(value, str) or "looks across" in said
