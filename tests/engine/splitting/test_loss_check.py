"""What a loss is a mean over is found out by gradients, and finding out leaves no trace."""

import random

import hypothesis.strategies as st
import numpy
import pytest
import torch
import torch.nn.functional as F
from helpers.examples import examples
from helpers.faults import ran_out
from hypothesis import given
from torch import nn

from brim.data import batch_length, slice_batch
from brim.engine.components.loss import Loss, as_sum, loss_of
from brim.engine.components.loss_count import SAMPLES, CountRule
from brim.engine.components.precision import Precision
from brim.engine.splitting.few_samples import enough_samples
from brim.engine.splitting.loss_check import judge_loss
from brim.engine.splitting.loss_verdict import ACROSS, LABEL_MEAN, OWN_COUNT, SAMPLE_MEAN, UNKNOWN, LossVerdict

FULL = Precision("32", torch.device("cpu"))
VOCABULARY, LENGTH = 11, 6


def net(*middle, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *middle, nn.Tanh(), nn.Linear(6, outputs))


def pairs(size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 4, generator=generator), torch.randint(0, 3, (size,), generator=generator)


class Reader(nn.Module):
    """A small model of texts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY)

    def forward(self, ids):
        return self.out(self.table(ids).tanh())


def texts(size=8, seed=0, padding=-100, full=False):
    """Ids, labels that are ``padding`` after the end of each text, and a mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (size, LENGTH), generator=generator)
    lengths = torch.randint(2, LENGTH + 1, (size,), generator=generator)
    mask = torch.ones(size, LENGTH).long() if full else (torch.arange(LENGTH) < lengths[:, None]).long()
    return {"ids": ids, "mask": mask, "labels": ids.masked_fill(mask == 0, padding)}


def judged(loss_fn, data=None, model=None):
    return judge_loss(loss_of(net() if model is None else model, loss_fn), pairs() if data is None else data, FULL)


def gradient(model, loss):
    weights = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])


def residual(verdict, loss_fn, data, model):
    """How far uneven parts, weighted by what the verdict counts, are from the gradient of the whole."""
    compute, size = loss_of(model, loss_fn), batch_length(data)
    compute.count_by(verdict.rule)
    parts = [as_sum(compute(slice_batch(data, a, b)), b - a) for a, b in ((0, 1), (1, size))]
    got = gradient(model, sum(part.total for part in parts) / sum(part.count for part in parts))
    want = gradient(model, as_sum(compute.plain(data), size).mean)
    return float((got - want).norm() / want.norm())


# Means over samples


class Penalised(nn.Linear):
    def calculate_loss(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1]) + 0.1 * sum(p.square().sum() for p in self.parameters())


def penalised(model, batch):
    return model(batch[0]).abs().mean() + 0.1 * sum(p.square().sum() for p in model.parameters())


SAMPLE_MEANS = {
    "cross entropy": lambda m, b: F.cross_entropy(m(b[0]), b[1]),
    "label smoothing": lambda m, b: F.cross_entropy(m(b[0]), b[1], label_smoothing=0.1),
    "a multiple of it": lambda m, b: 100 * F.cross_entropy(m(b[0]), b[1]),
    "focal": lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="none").square().mean(),
    "a mean of squares": lambda m, b: m(b[0]).square().mean(),
    "a mean of sums": lambda m, b: m(b[0]).square().sum() / len(b[0]),
    "a penalty on the weights": penalised,
    "in an output": lambda m, b: {"loss": m(b[0]).square().mean(), "logits": 0},
    "one of several heads": lambda m, b: m(b[0])[:, :1].square().mean(),
}


@pytest.mark.matrix(16)
@pytest.mark.parametrize("name", SAMPLE_MEANS)
@pytest.mark.parametrize("size", [2, 3, 8, 21])
def test_a_mean_over_samples_gives_a_count_by_which_parts_add_up(name, size):
    verdict = judged(SAMPLE_MEANS[name], pairs(size))
    assert verdict.gives_count, verdict
    assert residual(verdict, SAMPLE_MEANS[name], pairs(size, seed=3), net()) <= 1e-5


def test_no_label_is_put_into_ctc_that_would_write_beyond_its_memory():
    seen = []

    def loss(model, batch):
        scores, targets, lengths = batch
        seen.append(targets)
        return F.ctc_loss(model(scores).log_softmax(-1).transpose(0, 1), targets, torch.full_like(lengths, 9), lengths)

    generator = torch.Generator().manual_seed(0)
    batch = (
        torch.randn(8, 9, 4, generator=generator),
        torch.randint(1, 3, (8, 3), generator=generator),
        torch.randint(1, 4, (8,), generator=generator),
    )
    assert judged(loss, batch).kind == SAMPLE_MEAN
    assert all(int(targets.min()) >= 0 and int(targets.max()) < 3 for targets in seen)


@pytest.mark.parametrize("target", [(8, 3), (8, 3, 2)])
def test_torchs_criteria_without_classes_are_means_over_samples(target):
    model = nn.Sequential(net(outputs=target[1] * 2 if len(target) > 2 else 3), nn.Unflatten(1, target[1:]))
    assert judged(nn.MSELoss(), (pairs()[0], torch.randn(target)), model).kind == SAMPLE_MEAN


def test_the_models_own_loss_is_asked():
    assert judged(None, model=Penalised(4, 3)).gives_count


@given(st.integers(2, 40), st.integers(0, 1000))
@examples(15)
def test_a_plain_mean_is_always_recognised(size, seed):
    assert judged(nn.CrossEntropyLoss(), pairs(size, seed)).gives_count


# Means over labels


def token_mean(model, batch):
    return F.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["labels"].flatten())


def shifted_mean(model, batch):
    return F.cross_entropy(model(batch["ids"])[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())


def padded_mean(model, batch):
    return F.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["labels"].flatten(), ignore_index=0)


def masked_mean(model, batch):
    errors = F.cross_entropy(model(batch["ids"]).mT, batch["ids"], reduction="none")
    return (errors * batch["mask"]).sum() / batch["mask"].sum()


def shifted_masked_mean(model, batch):
    errors = F.cross_entropy(model(batch["ids"])[:, :-1].mT, batch["ids"][:, 1:], reduction="none")
    return (errors * batch["mask"][:, 1:]).sum() / batch["mask"][:, 1:].sum()


def with_mask(kind):
    return lambda **how: {**texts(**how), "mask": texts(**how)["mask"].to(kind)}


LABEL_MEANS = {
    "-100": (token_mean, texts, CountRule(("labels",))),
    "shifted": (shifted_mean, texts, CountRule(("labels",), shift=1)),
    "padding of 0": (padded_mean, lambda **how: texts(padding=0, **how), CountRule(("labels",), 0)),
    "a mask": (masked_mean, texts, CountRule(("mask",), 0)),
    "a mask of truths": (masked_mean, with_mask(torch.bool), CountRule(("mask",), 0)),
    "a mask of real numbers": (masked_mean, with_mask(torch.float32), CountRule(("mask",), 0)),
    "a shifted mask": (shifted_masked_mean, texts, CountRule(("mask",), 0, shift=1)),
}


@pytest.mark.parametrize("name", LABEL_MEANS)
def test_a_mean_over_labels_is_told_with_what_it_counts(name):
    loss_fn, data, rule = LABEL_MEANS[name]
    verdict = judged(loss_fn, data(), Reader())
    assert verdict.kind == LABEL_MEAN
    assert [verdict.rule.count(data(seed=s)) for s in range(5)] == [rule.count(data(seed=s)) for s in range(5)]
    assert residual(verdict, loss_fn, data(seed=3), Reader()) <= 1e-5


@pytest.mark.parametrize(
    "name",
    ["-100", "shifted", *(pytest.param(name) for name in LABEL_MEANS if "mask" in name or name == "padding of 0")],
)
def test_a_batch_without_padding_tells_as_much(name):
    loss_fn, data, _ = LABEL_MEANS[name]
    verdict = judged(loss_fn, data(full=True), Reader())
    assert verdict.kind == LABEL_MEAN
    assert residual(verdict, loss_fn, data(seed=3), Reader()) <= 1e-5


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("padding", [-1, 0, 7])
def test_what_a_criterion_says_it_ignores_is_known_before_it_is_seen(shift, padding):
    class Model(Reader):
        def __init__(self):
            super().__init__()
            self.criterion = nn.CrossEntropyLoss(ignore_index=padding)

        def calculate_loss(self, batch):
            logits = self(batch["ids"])[:, : LENGTH - shift]
            return self.criterion(logits.flatten(0, 1), batch["labels"][:, shift:].flatten())

    verdict = judged(None, texts(full=True), Model())
    assert verdict.rule == CountRule(("labels",), padding, shift)
    assert residual(verdict, None, texts(seed=3, padding=padding), Model()) <= 1e-5


@pytest.mark.parametrize("has_ignored", [True, False])
def test_single_labels_that_are_ignored_count_too(has_ignored):
    def classes(seed=0):
        x, y = pairs(seed=seed)
        return x, y.masked_fill(torch.arange(8) % 3 == seed % 3, -100) if has_ignored or seed else y

    loss_fn = SAMPLE_MEANS["cross entropy"]
    verdict = judged(loss_fn, classes())
    assert verdict.gives_count
    assert residual(verdict, loss_fn, classes(seed=1), net()) <= 1e-5


@pytest.mark.parametrize("wrap", [tuple, list, lambda columns: {"inner": {"pair": tuple(columns)}}])
def test_labels_are_found_in_any_container(wrap):
    def loss_fn(model, batch):
        ids, labels = batch["inner"]["pair"] if isinstance(batch, dict) else batch
        return token_mean(model, {"ids": ids, "labels": labels})

    def data(seed, full=False):
        return wrap([texts(seed=seed, full=full)[key] for key in ("ids", "labels")])

    verdict = judged(loss_fn, data(0, full=True), Reader())
    assert verdict.kind == LABEL_MEAN
    assert residual(verdict, loss_fn, data(3), Reader()) <= 1e-5


def test_a_symmetric_start_hides_nothing():
    model = Reader()
    nn.init.zeros_(model.out.weight)
    assert judged(token_mean, texts(), model).rule == CountRule(("labels",))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    assert judged(token_mean, texts(), model).rule == CountRule(("labels",))


def test_a_head_of_zeros_hides_no_loss_across_the_batch():
    model = net()
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    assert not judged(in_batch_negatives, model=model).gives_count


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_are_judged_by_a_longer_copy(kind):
    assert judged(token_mean, texts(), Reader().to(kind)).rule == CountRule(("labels",))
    data = (pairs()[0].to(kind), pairs()[1])
    assert judged(nn.CrossEntropyLoss(), data, net().to(kind)).gives_count
    assert judged(in_batch_negatives, data, net().to(kind)).kind == ACROSS


# Losses across the batch, and those that count otherwise


def in_batch_negatives(model, batch):
    x = F.normalize(model(batch[0]), dim=1)
    return F.cross_entropy(x @ x.roll(1, 1).T / 0.1, torch.arange(len(x)))


def clip_loss(model, batch):
    x = F.normalize(model(batch[0]), dim=1)
    logits, right = x @ F.normalize(model(batch[0] + 0.1), dim=1).T / 0.07, torch.arange(len(x))
    return (F.cross_entropy(logits, right) + F.cross_entropy(logits.T, right)) / 2


def info_nce(model, batch):
    one, two = model(batch[0]), model(batch[0] * 1.1)
    others = torch.cat([one, two]) @ torch.cat([one, two]).T / 0.5 - 1e9 * torch.eye(2 * len(one))
    return F.cross_entropy(others, (torch.arange(2 * len(one)) + len(one)) % (2 * len(one)))


def batch_hard_triplet(model, batch):
    x, same = model(batch[0]), batch[1][:, None] == batch[1]
    apart = torch.cdist(x, x)
    hardest, nearest = (apart * same).amax(1), (apart + 1e3 * same).amin(1)
    return F.relu(hardest - nearest + 1.0).mean()


def home_made_norm(model, batch):
    x = model(batch[0])
    return ((x - x.mean(0)) / x.std(0)).pow(3).mean()


def variance(model, batch):
    return model(batch[0]).var(0).mean()


def weighted_classes(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], weight=torch.tensor([0.1, 1.0, 5.0]))


def some_chosen(model, batch):
    counted = batch[0][:, 0] > 0
    return (model(batch[0]).square().mean(1) * counted).sum() / counted.sum()


def root_of_mean(model, batch):
    return model(batch[0]).square().mean().sqrt()


LOOKING_ACROSS = (
    in_batch_negatives, clip_loss, info_nce, batch_hard_triplet, home_made_norm, variance, weighted_classes,
    root_of_mean,
)  # fmt: skip


@pytest.mark.parametrize(
    ("loss_fn", "size"),
    [*((loss_fn, size) for loss_fn in LOOKING_ACROSS for size in (8, 21)), pytest.param(some_chosen, 8)],
)
def test_losses_that_parts_would_change_are_found_out(loss_fn, size):
    verdict = judged(loss_fn, pairs(size))
    assert verdict.kind == ACROSS
    assert verdict.reason


class Enlarging(nn.Module):
    """Rounds otherwise for batches of another size, as a GPU does, and makes some thousand times more of it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        rounding = 0.1 * len(x) + 0.3
        return self.last(torch.sin(self.first(x) * rounding / rounding * 1e4))


def test_rounding_that_a_model_enlarges_is_not_taken_for_another_count():
    model, (x, y) = Enlarging(), pairs(size=6)
    mean = [
        torch.autograd.grad(F.cross_entropy(model(x[r]), y[r]), model.first.weight)[0]
        for r in (slice(6), slice(3), slice(3, 6))
    ]
    assert (mean[0] - (mean[1] + mean[2]) / 2).norm() > 1e-4 * mean[0].norm()  # parts and whole are that far apart
    assert judged(lambda m, b: F.cross_entropy(m(b[0]), b[1]), (x, y), model).gives_count


def test_a_small_term_across_the_batch_is_not_taken_for_rounding():
    def loss_fn(model, batch):
        logits = model(batch[0])
        return F.cross_entropy(logits, batch[1]) + 1e-3 * (logits - logits.mean(0)).pow(2).mean()

    assert judged(loss_fn, pairs(size=6), Enlarging()).kind == ACROSS


def test_a_sum_is_not_a_mean():
    assert judged(lambda m, b: m(b[0]).square().sum()).kind == ACROSS


def test_auxiliary_losses_over_the_batch_are_found_out():
    def balanced(model, batch):
        chosen = model(batch[0]).softmax(1)
        return chosen.square().mean() + (chosen.mean(0) * chosen.detach().argmax(1).bincount(minlength=3)).sum()

    assert judged(balanced).kind == ACROSS


@pytest.mark.parametrize("ignored", [(0, 1), pytest.param((0, 5)), pytest.param(())])
def test_labels_that_are_ignored_by_a_value_of_ones_own_do_not_pass_for_samples(ignored):
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], ignore_index=-1)

    def data(ignored):
        x, y = pairs()
        y[list(ignored)] = -1
        return x, y

    verdict = judged(loss_fn, data(ignored))
    assert not verdict.gives_count or residual(verdict, loss_fn, data((1, 4)), net()) <= 1e-5


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        *((kind, (0, 1, 2)) for kind in (torch.float32, torch.bool, torch.long)),
        *(pytest.param(kind, (0, 5)) for kind in (torch.float32, torch.bool)),
        *(pytest.param(kind, ()) for kind in (torch.float32, torch.bool)),
        (torch.long, ()),
    ],
)
def test_a_mask_over_samples_does_not_pass_for_samples(kind, left_out):
    def loss_fn(model, batch):
        x, y, mask = batch
        return (F.cross_entropy(model(x), y, reduction="none") * mask).sum() / mask.sum()

    def data(left_out):
        mask = torch.ones(8)
        mask[list(left_out)] = 0
        return (*pairs(), mask.to(kind))

    verdict = judged(loss_fn, data(left_out))
    assert not verdict.gives_count or residual(verdict, loss_fn, data((1, 2, 4)), net()) <= 1e-5


def weighted(model, batch):
    return (F.cross_entropy(model(batch[0]), batch[1], reduction="none") * batch[2]).sum() / batch[2].sum()


def where_known(model, batch):
    known = ~batch[2].isnan()
    return (model(batch[0])[:, :1].reshape(known.shape) - batch[2])[known].square().mean()


@pytest.mark.parametrize(
    ("loss_fn", "first"),
    [
        (weighted, torch.arange(8.0)),
        pytest.param(weighted, torch.ones(8)),
        (where_known, torch.arange(8.0).masked_fill(torch.arange(8) < 3, torch.nan)),
        pytest.param(where_known, torch.arange(8.0)),
        (where_known, torch.arange(8.0)[:, None]),
    ],
)
def test_weights_of_samples_and_targets_that_are_missing_do_not_pass_for_samples(loss_fn, first):
    later = torch.tensor([1.0, torch.nan, 3.0, 4.0, 5.0, 1.0, torch.nan, 2.0])
    later = (later.nan_to_num(7.0) if loss_fn is weighted else later).reshape(first.shape)
    verdict = judged(loss_fn, (*pairs(), first))
    assert not verdict.gives_count or residual(verdict, loss_fn, (*pairs(), later), net()) <= 1e-5


def where_labelled(model, batch):
    labelled = batch[1] >= 0
    return F.cross_entropy(model(batch[0])[labelled], batch[1][labelled])


def of_tags(model, batch):
    """Tags from 1 on, padded with 0."""
    tagged = batch["labels"] > 0
    return F.cross_entropy(model(batch["ids"])[tagged], batch["labels"][tagged] - 1)


def over_real_tokens(model, batch):
    each = F.cross_entropy(model(batch["ids"]).mT, batch["ids"], reduction="none")
    return each[batch["ids"] != 0].mean()


def by_target(model, batch):
    known = ~batch[1].isnan()
    errors = (model(batch[0]) - batch[1].nan_to_num()).square() * known
    return (errors.sum(0) / known.sum(0).clamp(min=1)).mean()


def with_missing(targets):
    return targets.masked_fill(torch.eye(8, 3).bool(), torch.nan)


@pytest.mark.parametrize(
    ("loss_fn", "first", "later"),
    [
        (where_labelled, pairs(), (pairs()[0], pairs()[1] - torch.arange(8).eq(1).long() * 9)),
        (over_real_tokens, {"ids": texts(full=True)["ids"]}, {"ids": texts(padding=0)["labels"]}),
        (of_tags, texts(full=True) | {"labels": texts(full=True)["ids"].clamp(min=1)}, texts(padding=0)),
        (by_target, (pairs()[0], torch.randn(8, 3)), (pairs()[0], with_missing(torch.randn(8, 3)))),
    ],
)
def test_what_a_loss_ignores_need_not_be_in_the_first_batch(loss_fn, first, later):
    model = Reader() if isinstance(first, dict) else net()
    verdict = judged(loss_fn, first, model)
    assert not verdict.gives_count or residual(verdict, loss_fn, later, model) <= 1e-5


def over_lengths(model, batch):
    """A sum over real tokens, over the sum of lengths: the usual loss of padded sequences without ignored labels."""
    is_real = torch.arange(LENGTH) < batch["lengths"].reshape(-1, 1)
    each = F.cross_entropy(model(batch["ids"]).transpose(1, 2), batch["ids"], reduction="none")
    return (each * is_real).sum() / batch["lengths"].sum()


def over_weights(model, batch):
    each = F.cross_entropy(model(batch["ids"]).transpose(1, 2), batch["ids"], reduction="none").mean(1)
    return (each * batch["weight"]).sum() / batch["weight"].sum()


DIFFERENT, ALIKE = torch.tensor([1, 5, 2, 4, 3, 1, 5, 2]), torch.full((8,), 4)


def over_the_longest(model, batch):
    ids = batch["ids"][:, : int(batch["lengths"].max())]
    return F.cross_entropy(model(ids).transpose(1, 2), ids)


def over_the_longest_of_a_mask(model, batch):
    real = torch.arange(LENGTH) < batch["lengths"].reshape(-1, 1) if "lengths" in batch else batch["mask"]
    each = F.cross_entropy(model(batch["ids"]).transpose(1, 2), batch["ids"], reduction="none") * real
    return each.sum() / (len(real) * real.sum(1).max())


FULL_MASK = {"mask": torch.ones(8, LENGTH, dtype=torch.bool)}
OVER_LONGEST = [
    (over_the_longest, {"lengths": ALIKE}), (over_the_longest_of_a_mask, {"lengths": ALIKE}),
    (over_the_longest_of_a_mask, FULL_MASK),
]  # fmt: skip


@pytest.mark.parametrize(("loss_fn", "lengths"), OVER_LONGEST)
def test_a_mean_over_the_longest_is_found_out_though_all_are_as_long(loss_fn, lengths):
    assert judged(loss_fn, {"ids": texts(full=True)["ids"], **lengths}, Reader()).kind == ACROSS


@pytest.mark.parametrize("first", [DIFFERENT, ALIKE, DIFFERENT[:, None]])
@pytest.mark.parametrize("loss_fn", [over_lengths, over_weights])
def test_lengths_and_weights_are_a_count_wherever_they_stand_and_also_where_all_are_alike(loss_fn, first):
    def data(numbers):
        ids = texts(full=True)["ids"]
        if loss_fn is over_lengths:
            return {"lengths": numbers, "ids": ids, "more": ids.float()}
        return {"weight": numbers.flatten() / 3, "ids": ids, "more": ids.float()}

    verdict = judged(loss_fn, data(first), Reader())
    assert verdict.kind == LABEL_MEAN
    assert residual(verdict, loss_fn, data(DIFFERENT.flip(0)), Reader()) <= 1e-5


@pytest.mark.parametrize(
    "order", [("ids", "tags"), pytest.param(("tags", "ids")), pytest.param(("ids", "tags", "kinds", "places"))]
)
def test_labels_without_a_telling_name_are_found_before_the_inputs_use_up_the_tries(order):
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["tags"].flatten())

    def data(**how):
        made = texts(**how)
        return {key: made["labels" if key == "tags" else "ids"] for key in order}

    verdict = judged(loss_fn, data(full=True), Reader())
    assert not verdict.gives_count or residual(verdict, loss_fn, data(seed=3), Reader()) <= 1e-5


# Counts that the loss says itself


def tokens_counted(model, batch):
    counted = batch[1] > 0
    return Loss((model(batch[0]).square().mean(1) * counted).sum(), counted.sum())


def miscounted(model, batch):
    return Loss(model(batch[0]).square().sum(), (batch[1] > 0).sum() ** 2)


def test_a_loss_that_says_what_it_counts_is_taken_by_its_word_where_that_is_right():
    assert judged(tokens_counted).kind == OWN_COUNT
    assert judged(nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0]))).kind == OWN_COUNT
    assert judged(nn.CrossEntropyLoss(ignore_index=0), pairs(21)).kind == OWN_COUNT


def test_a_loss_that_says_a_wrong_count_is_found_out():
    assert judged(miscounted).kind == ACROSS


# Random numbers


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(4, 6, 2, dropout=0.5, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.lstm(x[:, None].expand(-1, 3, -1))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.layer(x[:, None] * torch.arange(1, 4)[:, None])[:, 0])


class Functional(nn.Linear):
    def forward(self, x):
        return super().forward(F.dropout(x, 0.5, self.training))


class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x)) * torch.rand(len(x), 1)


class Attended(nn.Linear):
    def forward(self, x):
        x = super().forward(x)[:, None]
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)[:, 0]


DROPPING = {
    "nn.Dropout": lambda: net(nn.Dropout(0.5)),
    "nn.AlphaDropout": lambda: net(nn.AlphaDropout(0.5)),
    "nn.Dropout1d": lambda: net(nn.Unflatten(1, (2, 3)), nn.Dropout1d(0.5), nn.Flatten()),
    "LSTM": Recurrent,
    "attention": lambda: Attended(4, 3),
}
DRAWING = {"F.dropout": lambda: Functional(4, 3), "noise": lambda: Noisy(4, 3), "an encoder's layer": Attentive}


@pytest.mark.parametrize("make", [*DROPPING.values(), *(pytest.param(make) for make in DRAWING.values())])
def test_dropout_does_not_hide_what_a_loss_counts(make):
    torch.manual_seed(1)
    assert judged(SAMPLE_MEANS["a mean of squares"], model=make()).kind == SAMPLE_MEAN


@pytest.mark.parametrize("name", [*DROPPING, *DRAWING])
def test_dropout_does_not_hide_a_loss_across_the_batch(name):
    torch.manual_seed(1)
    make = {**DROPPING, **DRAWING}[name]
    assert not judged(in_batch_negatives, model=make()).gives_count


def shuffled_by_numpy(samples):
    return torch.from_numpy(numpy.random.permutation(samples))


def shuffled_by_python(samples):
    return torch.tensor(random.sample(range(samples), samples))


def shuffled_by_numbers(samples):
    return torch.rand(samples).argsort()


def turned(samples):
    return torch.arange(samples).flip(0)


@pytest.mark.parametrize("order", [shuffled_by_numpy, shuffled_by_python, shuffled_by_numbers, turned])
def test_samples_that_are_mixed_with_others_are_found_out(order):
    def mixup(model, batch):
        return model(0.7 * batch[0] + 0.3 * batch[0][order(len(batch[0]))]).square().mean()

    assert not judged(mixup).gives_count


def test_a_batch_that_is_shuffled_at_random_cannot_be_told():
    def mixup(model, batch):
        other = torch.randperm(len(batch[0]))
        return F.cross_entropy(model(0.7 * batch[0] + 0.3 * batch[0][other]), batch[1])

    verdict = judged(mixup)
    assert (verdict.kind, verdict.reason) == (UNKNOWN, "it shuffles the batch at random")


@pytest.mark.parametrize("draw", [lambda: random.random(), lambda: numpy.random.rand(), lambda: float(torch.rand(()))])
def test_a_number_that_is_drawn_once_for_a_batch_is_drawn_alike_for_its_parts(draw):
    def loss_fn(model, batch):
        return draw() * model(batch[0]).square().mean()

    assert judged(loss_fn).kind == SAMPLE_MEAN


OWN = numpy.random.default_rng(0)
DRAWN_APART = [numpy.random.rand, lambda n: [random.random() for _ in range(n)], OWN.random]


@pytest.mark.parametrize("draw", DRAWN_APART, ids=["numpy", "random", "own generator"])
def test_numbers_drawn_outside_of_torch_for_each_sample_are_not_taken_for_a_loss_that_looks_across(draw):
    def loss_fn(model, batch):
        return model(batch[0] * torch.tensor(draw(len(batch[0])), dtype=torch.float32)[:, None]).square().mean()

    verdict = judged(loss_fn)
    assert (verdict.kind, "random numbers outside of torch" in verdict.reason) == (UNKNOWN, True)


# Statistics and state


def test_batch_norm_beside_a_simple_loss_leaves_the_loss_a_mean_over_samples():
    model = net(nn.BatchNorm1d(6))
    assert judged(SAMPLE_MEANS["a mean of squares"], model=model).kind == SAMPLE_MEAN
    assert all(module.training for module in model.modules())


class Moving(nn.Module):
    """Two kinds of state: one follows the weights alone, the other the data."""

    def __init__(self):
        super().__init__()
        self.inner = net()
        self.slow = nn.Linear(4, 3).requires_grad_(False)
        self.centre = nn.BatchNorm1d(3, affine=False)
        self.mean = nn.Module()
        self.mean.register_buffer("value", torch.zeros(3))

    def forward(self, x):
        with torch.no_grad():
            self.slow.weight.lerp_(self.inner[-1].weight[:, :4], 0.1)
        x = self.inner(x) - self.slow(x)
        self.mean.value = 0.9 * self.mean.value + 0.1 * x.detach().mean(0)
        return x - self.mean.value


def test_what_moves_in_a_forward_pass_is_named_and_whether_it_follows_the_data():
    verdict = judged(SAMPLE_MEANS["a mean of squares"], model=Moving())
    assert {(state.name, state.follows_data) for state in verdict.moving} == {("slow", False), ("mean", True)}


# What cannot be told


def failing(model, batch):
    raise ValueError("only whole batches\nplease")


def failing_on_parts(model, batch):
    if len(batch[0]) < 8:
        raise ValueError("only whole batches")
    return model(batch[0]).square().mean()


def writing(model, batch):
    with open("written.txt", "a") as file:  # noqa: PTH123
        file.write("a step")
    return model(batch[0]).square().mean()


@pytest.mark.parametrize(
    ("loss_fn", "reason"),
    [
        (failing, "for a few samples it fails: ValueError: only whole batches"),
        (failing_on_parts, "for a few samples it fails: ValueError: only whole batches"),
        (writing, "the loss writes files, so it is not called on trial"),
        (lambda m, b: m(b[0]).square().mean(1), "it is not a single number"),
        (lambda m, b: None, "it is not a single number"),
        (lambda m, b: m(b[0]).sum() * 0, "the gradient of a few samples is zero"),
        (lambda m, b: m(b[0]).sum() * torch.nan, "the gradient of a few samples is not finite"),
    ],
    ids=["fails", "fails on parts", "writes files", "no scalar", "nothing", "zero", "not finite"],
)
def test_what_cannot_be_told_is_not_taken_for_a_mean(loss_fn, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verdict = judged(loss_fn)
    assert (verdict.kind, verdict.reason) == (UNKNOWN, reason)
    assert not verdict.gives_count
    assert not list(tmp_path.iterdir())


def test_a_loss_that_works_in_training_mode_only_is_judged_in_training_mode():
    class Detector(nn.Linear):
        def calculate_loss(self, batch):
            assert self.training, "losses are computed in training mode only"
            return in_batch_negatives(self, batch)

    assert judged(None, model=Detector(4, 3)).kind == ACROSS


@pytest.mark.parametrize("data", [pairs(0), pairs(1)])
def test_one_sample_or_none_gives_no_count(data):
    assert not judged(in_batch_negatives, data).gives_count


def test_fewer_samples_are_tried_where_memory_runs_out():
    seen = []

    def loss_fn(model, batch):
        seen.append(len(batch[0]))
        if len(batch[0]) > 2:
            raise ran_out()
        return model(batch[0]).square().mean()

    assert judged(loss_fn).kind == SAMPLE_MEAN
    assert seen == []  # what the trial appended was taken out again


def test_no_memory_for_two_samples_is_said():
    def loss_fn(model, batch):
        if len(batch[0]) > 1:
            raise ran_out()
        return Loss(model(batch[0]).square().sum(), 1)

    verdict = judged(loss_fn)
    assert (verdict.kind, verdict.lacks_memory, verdict.says_count) == (UNKNOWN, True, True)


def test_samples_whose_labels_are_all_ignored_are_passed_over():
    data = texts(40)
    data["labels"][:24] = -100
    assert judged(token_mean, data, Reader()).rule == CountRule(("labels",))


def test_a_frozen_model_in_evaluation_is_judged_by_its_losses():
    model = Reader().requires_grad_(False).eval()
    assert judged(token_mean, texts(), model).rule == CountRule(("labels",))
    model = net().requires_grad_(False).eval()
    assert judged(in_batch_negatives, model=model).kind == ACROSS


def test_a_loss_without_a_model_can_be_judged():
    weight = nn.Parameter(torch.ones(4))
    compute = loss_of(nn.Linear(4, 1), lambda m, b: (b[0] * weight).square().mean())
    assert judge_loss(compute, pairs(), FULL, [weight]).kind == SAMPLE_MEAN


# No trace


class Keeping(nn.Module):
    """Counts its calls, keeps what it saw and moves buffers and frozen weights in every way."""

    def __init__(self):
        super().__init__()
        self.inner = net(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.utils.spectral_norm(nn.Linear(6, 6)))
        self.slow = nn.Linear(4, 3).requires_grad_(False)
        self.register_buffer("queue", torch.zeros(4))
        self.calls, self.history = 0, []

    def forward(self, x):
        self.calls += 1
        self.history.append(x.detach())
        self.queue = self.queue.roll(1) + 1
        self.slow.weight.data.mul_(0.9)
        self.slow.bias.data = self.slow.bias.data + 1
        return self.inner(x)


def traces(model):
    tensors = [*model.parameters(), *model.buffers()]
    return [tensor.detach().clone() for tensor in tensors], (model.calls, len(model.history))


@pytest.mark.parametrize("ends", [None, "raises", "runs out", "interrupted"])
def test_weights_buffers_generators_python_state_and_gradients_are_as_before(ends, capsys):
    model, counts, drawn = Keeping(), {"calls": 0}, torch.Generator().manual_seed(5)
    model.inner[0].weight.grad = torch.ones(6, 4)
    model.inner[2].eval()

    def loss_fn(model, batch):
        counts["calls"] += 1
        print("a step")
        noise = torch.rand((), generator=drawn) + random.random() + numpy.random.rand()
        loss = (model(batch[0].mul_(2)) + noise).square().mean()
        if ends and model.calls > 1:
            raise {"raises": ValueError, "runs out": MemoryError, "interrupted": KeyboardInterrupt}[ends]
        return loss

    before, own, modes = traces(model), drawn.get_state(), [module.training for module in model.modules()]
    data, generators = pairs(), (torch.get_rng_state(), random.getstate(), numpy.random.get_state(legacy=False))
    try:
        judged(loss_fn, data, model)
    except KeyboardInterrupt:
        assert ends == "interrupted"
    after = traces(model)
    assert all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    assert (before[1], counts["calls"]) == (after[1], 0)
    assert torch.equal(drawn.get_state(), own)
    assert [module.training for module in model.modules()] == modes
    assert [p.grad is None for p in model.parameters()].count(False) == 1 and model.inner[0].weight.grad.eq(1).all()
    assert torch.equal(torch.get_rng_state(), generators[0]) and random.getstate() == generators[1]
    assert numpy.random.get_state(legacy=False)["state"]["pos"] == generators[2]["state"]["pos"]
    assert all(torch.equal(a, b) for a, b in zip(data, pairs(), strict=True))
    assert capsys.readouterr() == ("", "")


def test_gradient_hooks_are_not_called_and_stay():
    model, seen = net(), []
    model[0].weight.register_hook(lambda gradient: seen.append(1) or gradient.clamp(-1e-3, 1e-3))
    assert judged(SAMPLE_MEANS["a mean of squares"], model=model).kind == SAMPLE_MEAN
    assert not seen
    model(pairs()[0]).sum().backward()
    assert seen == [1]


# Enough samples to tell by


def test_the_longest_batch_is_asked_about():
    assert batch_length(enough_samples([pairs(1), pairs(5), pairs(3)])) == 5


def test_batches_of_one_sample_each_are_asked_about_together():
    window = [texts(1, seed=seed) for seed in range(4)]
    window[2] = {key: value[:, :4] for key, value in window[2].items()}
    joined = enough_samples(window)
    assert joined["ids"].shape == (4, 4)
    assert judged(token_mean, joined, Reader()).rule == CountRule(("labels",))
    assert not judged(in_batch_negatives, enough_samples([pairs(1, seed) for seed in range(4)])).gives_count


def test_a_sample_alone_is_put_beside_others_of_its_kind():
    joined = enough_samples([texts(1)])
    assert batch_length(joined) == 4
    assert judged(token_mean, joined, Reader()).rule == CountRule(("labels",))


def test_a_verdict_without_a_count_says_so():
    assert LossVerdict(SAMPLE_MEAN).gives_count and LossVerdict(SAMPLE_MEAN).rule == SAMPLES
    assert not LossVerdict(ACROSS).gives_count and not LossVerdict(UNKNOWN).gives_count
