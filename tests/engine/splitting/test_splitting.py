"""Whether batches may be split is asked once, and what differs is said in a sentence."""

import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from helpers.faults import ran_out
from torch import nn

import brim
from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.loss_count import SAMPLES, CountRule
from brim.engine.components.precision import Precision
from brim.engine.splitting.loss_verdict import (
    ACROSS,
    LABEL_MEAN,
    OWN_COUNT,
    SAMPLE_MEAN,
    UNKNOWN,
    LossVerdict,
    MovingState,
)
from brim.engine.splitting.splitting import ADVICE, Splitting, agreed, agreed_by_kind

FULL = Precision("32", torch.device("cpu"))
X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def net(*middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *middle, nn.Linear(6, 3))


def mean(model, batch):
    return model(batch[0]).square().mean()


def contrastive(model, batch):
    x = F.normalize(model(batch[0]), dim=1)
    return F.cross_entropy(x @ x.roll(1, 1).T / 0.1, torch.arange(len(x)))


def splitting(loss_fn=mean, model=None, sliceable=None, **how):
    model = net() if model is None else model
    return Splitting(loss_of(model, loss_fn), model, FULL, sliceable, **how)


# Asking


def test_a_loss_is_judged_once_and_the_verdict_is_told():
    told = []
    asked = splitting(on_verdict=told.append)
    first = asked.judge([(X, X)])
    assert asked.judge([(X, X)]) is first
    assert told == [first] and first.kind == SAMPLE_MEAN


def test_a_verdict_with_a_count_weighs_the_loss_from_then_on():
    labels = torch.randint(0, 3, (8,)).masked_fill(torch.arange(8) < 3, -100)
    asked = splitting(lambda m, b: F.cross_entropy(m(b[0]), b[1]))
    assert asked.judge([(X, labels)]).kind == LABEL_MEAN
    loss = asked.loss((X, labels))
    assert isinstance(loss, Loss) and int(loss.count) == 5


def test_a_verdict_without_a_count_changes_nothing():
    asked = splitting(contrastive)
    asked.judge([(X, X)])
    assert not asked.loss.is_judged((X, X)) and not isinstance(asked.loss((X, X)), Loss)


def similar(rows, others):
    return F.cross_entropy(rows @ others.T / 0.1, torch.arange(len(rows)))


def rows_of(model, batch):
    return F.normalize(model(batch[0]), dim=1), F.normalize(model(batch[0].roll(1, 1)), dim=1)


def gathered(model, batch):
    return similar(*map(brim.gather, rows_of(model, batch)))


def gathered_wrongly(model, batch):
    """The partners of a rank's own rows are not the first ones of all, but on the first rank."""
    one, two = rows_of(model, batch)
    return similar(one, brim.gather(two))


def against_all(model, batch):
    """A rank's own rows against those of all ranks."""
    one, two = rows_of(model, batch)
    return brim.Loss((one @ brim.gather(two).T).exp().sum(), len(one))


@pytest.mark.parametrize(
    ("loss_fn", "gathers", "joins_ranks"),
    [
        (gathered, True, True),
        (against_all, True, True),
        (gathered_wrongly, True, False),
        (contrastive, False, False),
        (mean, False, False),
    ],
)
def test_it_is_found_out_whether_gathering_makes_the_losses_of_ranks_one(loss_fn, gathers, joins_ranks):
    asked = splitting(loss_fn).judge([(X, X)])
    assert (asked.gathers, asked.joins_ranks) == (gathers, joins_ranks)


def test_gathering_is_judged_too_where_a_column_of_both_signs_could_be_no_count():
    column = torch.tensor([1.0, -1.0]).repeat(len(X))[: len(X), None]
    assert splitting(gathered).judge([(X, column)]).joins_ranks
    assert not splitting(gathered_wrongly).judge([(X, column)]).joins_ranks


def test_of_a_loss_in_two_passes_the_encoding_is_asked_about():
    asked = splitting(brim.TwoPass(rows_of, similar), is_of_encode=True)
    assert asked.judge([(X, X)]).gives_count and not asked.loss.is_judged((X, X))
    assert asked.of_whole_loss().judge([(X, X)]).kind == ACROSS


def test_without_memory_it_is_asked_again():
    class Tight(nn.Linear):
        limit = 1

        def forward(self, x):
            if len(x) > self.limit:
                raise ran_out()
            return super().forward(x)

    asked = splitting(model=(model := Tight(4, 3)))
    assert asked.judge([(X, X)]).lacks_memory
    model.limit = 99
    assert asked.judge([(X, X)]).kind == SAMPLE_MEAN


@pytest.mark.parametrize("batches", [[], [(X[:0], X[:0])]])
def test_without_a_sample_it_cannot_be_told(batches):
    assert splitting().judge(batches).kind == UNKNOWN


def test_without_a_loss_of_brims_it_cannot_be_told():
    assert Splitting(None, None, FULL).judge([(X, X)]).kind == UNKNOWN


# Sentences


@pytest.mark.parametrize(
    ("loss_fn", "said"),
    [
        (contrastive, "looks across the batch"),
        (lambda m, b: 1 // 0, "cannot be told (for a few samples it fails: Zero"),
    ],
)
def test_what_was_asked_for_by_name_gets_one_sentence_with_the_way_out(loss_fn, said):
    asked = splitting(loss_fn)
    asked.judge([(X, X)])
    sentence = asked.warning("micro_batch=4 splits the batch")
    assert sentence.startswith("micro_batch=4 splits the batch, and ") and said in sentence and ADVICE in sentence
    assert "brim.Loss(total, count)" in sentence and "sliceable=True" in sentence


def test_what_adds_up_or_was_said_to_gets_none():
    asked = splitting()
    assert asked.warning("x") is None
    asked.judge([(X, X)])
    assert asked.warning("x") is None
    asked = splitting(contrastive, sliceable=True)
    asked.judge([(X, X)])
    assert asked.warning("x") is None


def test_why_a_batch_stays_whole():
    asked = splitting(contrastive)
    asked.judge([(X, X)])
    assert "looks across the batch" in asked.why_whole() and "brim.Loss(total, count)" in asked.why_whole()
    asked = splitting(lambda m, b: 1 // 0)
    asked.judge([(X, X)])
    assert "cannot be told" in asked.why_whole()
    assert "sliceable=False" in splitting(sliceable=False).why_whole()


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


def test_state_that_moves_with_the_data_is_named():
    asked = splitting(model=net(Centred(), nn.utils.spectral_norm(nn.Linear(6, 6))))
    asked.judge([(X, X)])
    (sentence,) = asked.differences("micro-batches")
    assert sentence.startswith("1 moves with the data") and "micro-batches" in sentence
    assert asked.steady_state() is not None  # spectral norm follows the weights alone
    assert splitting(model=net(Centred()), sliceable=True).differences("micro-batches") == []


def test_state_that_follows_the_weights_alone_is_not_spoken_of():
    asked = splitting(model=net(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))))
    asked.judge([(X, X)])
    assert asked.differences("micro-batches") == [] and asked.steady_state() is not None


def test_a_criterions_state_is_named_too():
    class Centre(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("centre", torch.zeros(3))

        def forward(self, input, target):
            self.centre = 0.9 * self.centre + 0.1 * input.detach().mean(0)
            return F.mse_loss(input - self.centre, target)

    asked = splitting(Centre())
    asked.judge([(X, X[:, :3])])
    (sentence,) = asked.differences("micro-batches")
    assert "Centre moves with the data" in sentence


HOOKS = {
    "a parameter": ("0.weight", lambda m: m[0].weight.register_hook(lambda g: g.clamp(-1, 1))),
    "after accumulation": ("0.weight", lambda m: m[0].weight.register_post_accumulate_grad_hook(lambda p: None)),
    "a module": ("1", lambda m: m[1].register_full_backward_hook(lambda module, gi, go: None)),
    "before a module": ("1", lambda m: m[1].register_full_backward_pre_hook(lambda module, go: None)),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_gradient_hooks_of_the_user_are_named(kind):
    model = net()
    name, register = HOOKS[kind]
    register(model)
    (sentence,) = splitting(model=model).differences("micro-batches")
    assert f"the gradient hook of {name} sees" in sentence


def test_only_some_of_many_names_are_said():
    model = net()
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: None)
    assert "0.weight, 0.bias, 1.weight and 1 more" in splitting(model=model).differences("micro-batches")[0]


def test_forward_hooks_and_torchs_own_are_nobodys_business():
    model = net(nn.utils.weight_norm(nn.Linear(6, 6)))
    model.register_forward_hook(lambda module, inputs, output: None)
    assert splitting(model=model).differences("micro-batches") == []


# Last resorts


@pytest.mark.parametrize(
    ("loss_fn", "middle", "resort"),
    [
        (nn.MSELoss(), (nn.BatchNorm1d(6),), True),
        (nn.MSELoss(), (), False),
        (contrastive, (), False),
        (lambda m, b: 1 // 0, (), False),
    ],
    ids=["batch norm", "nothing", "contrastive", "unknown"],
)
def test_statistics_within_the_model_may_be_split_as_a_last_resort_and_losses_not(loss_fn, middle, resort):
    asked = splitting(loss_fn, net(*middle))
    assert not asked.is_last_resort
    asked.judge([(X, X[:, :3])])
    assert asked.is_last_resort is resort


# Ranks agree


def test_one_rank_that_sees_trouble_is_enough():
    mean, across = LossVerdict(SAMPLE_MEAN), LossVerdict(ACROSS, reason="it mixes")
    assert agreed([mean, across, mean]) == across


def test_ranks_without_a_sample_have_no_say():
    unknown, labels = LossVerdict(UNKNOWN, reason="there is no sample here"), LossVerdict(LABEL_MEAN, CountRule((1,)))
    assert agreed([unknown, labels]) == labels
    assert agreed([unknown, unknown]) == unknown


def test_ranks_that_see_different_means_do_not_split():
    verdict = agreed([LossVerdict(SAMPLE_MEAN, SAMPLES), LossVerdict(LABEL_MEAN, CountRule((1,)))])
    assert verdict.kind == ACROSS and "ranks see different means" in verdict.reason


def test_ranks_agree_on_targets_that_are_missing():
    rule = CountRule((1,), math.nan)
    told = [pickle.loads(pickle.dumps(LossVerdict(LABEL_MEAN, rule))) for _ in range(2)]
    assert agreed(told).rule == rule


def test_what_moves_on_any_rank_moves():
    one, other = MovingState("a", True), MovingState("b", False)
    verdict = agreed([LossVerdict(OWN_COUNT, moving=(one,)), LossVerdict(OWN_COUNT, moving=(one, other))])
    assert verdict.moving == (one, other)


def test_a_kind_that_one_rank_has_is_known_to_all():
    mean, labels = LossVerdict(SAMPLE_MEAN), LossVerdict(LABEL_MEAN, CountRule((1,)))
    nothing = LossVerdict(UNKNOWN, reason="there is no sample here")
    assert agreed_by_kind([{"a": mean}, {"b": labels, "a": mean}, {None: nothing}]) == {"a": mean, "b": labels}
    assert agreed_by_kind([{None: nothing}] * 2) == {None: nothing}


class CountsExchanges:
    """Two ranks, of which the other one has the same batches."""

    def __init__(self):
        self.exchanges = 0

    def all_gather_object(self, value):
        self.exchanges += 1
        return [value, value]


def test_kinds_that_come_later_are_judged_without_an_exchange_that_other_ranks_may_not_enter():
    asked, ranks = splitting(), CountsExchanges()
    asked.judge([(X, X)], ranks=ranks)
    assert asked.judge([(X, X[:, 0])], ranks=ranks).gives_count
    assert asked.knows([(X, X[:, 0])]) and ranks.exchanges == 1
