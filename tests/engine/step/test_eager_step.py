"""The step against the plain way: the gradient of the mean over the whole window."""

import hypothesis.strategies as st
import pytest
import torch
from helpers.examples import examples
from hypothesis import given
from torch import Tensor, nn

from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.loss_count import CountRule
from brim.engine.components.precision import Precision
from brim.engine.components.two_pass import TwoPass
from brim.engine.step.eager_step import EagerStep

CPU = torch.device("cpu")


def make_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    return (model(x) - y).square().mean()


def counted_tokens(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    """Rows weigh differently, as padded sequences do: the weight of a row is its first feature's size."""
    x, y = batch
    weight = (x[:, :1].abs() > 0.5).float() * 3
    return Loss(((model(x) - y).square() * weight).sum(), weight.sum())


def gradients_of(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def relative_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm().clamp(min=1e-12))


def make_step(model, loss_fn, precision=None, lr=0.0, **settings):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return EagerStep(loss_of(model, loss_fn), optimizer, precision or Precision("32", CPU), **settings)


def step_gradients(loss_fn, window, micro_batch, clip_norm=None):
    model = make_net()
    step = make_step(model, loss_fn, micro_batch=micro_batch, clip_norm=clip_norm)
    loss = step(window).loss
    return gradients_of(model), float(loss)


def window_of(sizes: list[int], seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(n, 5, generator=generator), torch.randn(n, 1, generator=generator)) for n in sizes]


def whole_gradients(loss_fn, window):
    """One batch, one backward, no slicing: what everything is compared with."""
    model = make_net()
    batch = tuple(torch.cat(column) for column in zip(*window, strict=True))
    loss = loss_fn(model, batch)
    loss = loss.total / loss.count if isinstance(loss, Loss) else loss
    loss.backward()
    return gradients_of(model), float(loss.detach())


@examples(60)
@given(
    sizes=st.lists(st.integers(1, 23), min_size=1, max_size=4),
    micro_batch=st.one_of(st.none(), st.integers(1, 25)),
    loss_fn=st.sampled_from([squared_error, counted_tokens]),
    seed=st.integers(0, 1000),
)
def test_slices_and_windows_of_any_size_give_the_gradient_of_the_whole(sizes, micro_batch, loss_fn, seed):
    window = window_of(sizes, seed)
    if loss_fn is counted_tokens and not any((x[:, 0].abs() > 0.5).any() for x, _ in window):
        return  # nothing counts at all: tested below
    expected, expected_loss = whole_gradients(loss_fn, window)
    gradients, loss = step_gradients(loss_fn, window, micro_batch)
    assert relative_difference(gradients, expected) <= 1e-5
    assert loss == pytest.approx(expected_loss, rel=1e-5)


def test_a_mean_of_means_would_fail_the_comparison():
    window = window_of([8, 3])
    expected, _ = whole_gradients(squared_error, window)
    model = make_net()
    for batch in window:
        (squared_error(model, batch) / len(window)).backward()
    assert relative_difference(gradients_of(model), expected) > 1e-3


def test_a_count_on_the_device_and_a_plain_number_give_the_same():
    window = window_of([9, 4])

    def plain_count(model, batch):
        loss = counted_tokens(model, batch)
        return Loss(loss.total, float(loss.count))

    a, _ = step_gradients(counted_tokens, window, 4)
    b, _ = step_gradients(plain_count, window, 4)
    assert relative_difference(a, b) <= 1e-6


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_window_in_which_nothing_counts_changes_nothing(micro_batch):
    def nothing(model, batch):
        return Loss((model(batch[0]) * 0).sum(), torch.zeros(()))

    gradients, loss = step_gradients(nothing, window_of([4]), micro_batch)
    assert loss == 0.0
    assert torch.equal(gradients, torch.zeros_like(gradients))


def test_clipping_sees_the_gradient_of_the_whole_window():
    window = window_of([6, 5])
    expected, _ = whole_gradients(squared_error, window)
    clip = float(expected.norm()) / 2
    gradients, _ = step_gradients(squared_error, window, 2, clip_norm=clip)
    assert relative_difference(gradients, expected / 2) <= 1e-4


def test_gradients_of_the_step_before_are_gone():
    model = make_net()
    step = make_step(model, squared_error)
    window = window_of([6])
    step(window)
    first = gradients_of(model).clone()
    step(window)
    assert torch.equal(gradients_of(model), first)


def test_an_optimizer_with_a_zero_grad_of_its_own_is_asked():
    class Counting(torch.optim.SGD):
        calls = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.calls += 1
            super().zero_grad(set_to_none)

    model = make_net()
    optimizer = Counting(model.parameters(), lr=0.1)
    EagerStep(loss_of(model, squared_error), optimizer, Precision("32", CPU))(window_of([3]))
    assert optimizer.calls == 1


def test_a_parameter_group_added_later_is_cleared_too():
    model, late = make_net(), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = EagerStep(lambda batch: squared_error(model, batch) * late.sum(), optimizer, Precision("32", CPU))
    step(window_of([3]))
    optimizer.add_param_group({"params": [late]})
    step(window_of([3]))
    once = late.grad.clone()
    step(window_of([3]))
    assert torch.equal(late.grad, once)


@pytest.mark.parametrize(("micro_batch", "encoded"), [(None, [6]), (6, [6]), (7, [6]), (5, [3, 3, 3, 3])])
def test_a_loss_in_two_passes_takes_one_where_the_batch_is_a_micro_batch(micro_batch, encoded):
    seen = []

    def encode(model, batch):
        seen.append(len(batch[0]))
        return (model(batch[0]),)

    make_step(make_net(), TwoPass(encode, lambda outputs, model: outputs.var()), micro_batch=micro_batch)(
        window_of([6])
    )
    assert seen == encoded


def test_a_bad_loss_on_the_cpu_does_not_reach_the_weights():
    model = make_net()
    before = [p.clone() for p in model.parameters()]
    step = make_step(model, lambda model, batch: squared_error(model, batch) * float("nan"), lr=1.0)
    assert torch.isnan(step(window_of([3])).loss)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_sliced_weights_after_fifty_steps_are_those_of_whole_batches():
    def train(micro_batch):
        model = make_net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step = EagerStep(loss_of(model, squared_error), optimizer, Precision("32", CPU), micro_batch)
        for seed in range(50):
            step(window_of([13], seed))
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert relative_difference(train(4), train(None)) <= 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["32", "bf16-mixed", "16-mixed"])
def test_slices_on_the_gpu_give_the_gradient_of_the_whole(precision):
    cuda = torch.device("cuda")
    window = [(x.cuda(), y.cuda()) for x, y in window_of([64, 17])]
    found = {}
    for micro_batch in (None, 5):
        model = make_net().cuda()
        batch = window if micro_batch else [tuple(torch.cat(column) for column in zip(*window, strict=True))]
        make_step(model, squared_error, Precision(precision, cuda), micro_batch=micro_batch, clip_norm=1e9)(batch)
        found[micro_batch] = gradients_of(model).float()
    assert relative_difference(found[5], found[None]) <= (1e-5 if precision == "32" else 2e-2)


# Means over labels


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, ids):
        return self.out(self.table(ids).tanh())


def texts(lengths=(6, 5, 3, 2, 4, 1, 0, 0)):
    ids = torch.randint(3, 11, (len(lengths), 6), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
    return {"ids": ids, "mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def token_mean(model, batch):
    return nn.functional.cross_entropy(model(batch["ids"]).mT, batch["labels"])


def masked_mean(model, batch):
    errors = nn.functional.cross_entropy(model(batch["ids"]).mT, batch["ids"], reduction="none")
    return (errors * batch["mask"]).sum() / batch["mask"].sum()


@pytest.mark.parametrize(
    ("loss_fn", "rule", "micro_batch"),
    [
        *((token_mean, CountRule(("labels",)), size) for size in (None, 1, 2, 3)),
        (masked_mean, CountRule(("mask",), 0), None),
        *((masked_mean, CountRule(("mask",), 0, skips_empty=True), size) for size in (1, 2)),
        (masked_mean, CountRule(("mask",), 0), 3),
    ],
)
def test_micro_batches_without_a_label_count_nothing(loss_fn, rule, micro_batch):
    model, plain = Reader(), Reader()
    compute = loss_of(model, loss_fn)
    compute.count_by(rule)
    EagerStep(compute, torch.optim.SGD(model.parameters(), lr=0.1), Precision("32", CPU), micro_batch).gradients(
        [texts()]
    )
    loss_fn(plain, texts()).backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
