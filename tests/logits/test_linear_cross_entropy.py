"""brim.linear_cross_entropy beside the plain loss: values, gradients, memory."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import brim
from brim import linear_cross_entropy
from brim.errors import ConfigError
from tests.helpers.largest_tensor import LargestTensor

TOKENS, FEATURES, WORDS = 23, 8, 37


def made(dtype=torch.float64, bias=True, requires_grad=True):
    draw = torch.Generator().manual_seed(0)
    shapes = ((TOKENS, FEATURES), (WORDS, FEATURES), (WORDS,))
    tensors = [torch.randn(shape, generator=draw, dtype=dtype, requires_grad=requires_grad) for shape in shapes]
    targets = torch.randint(0, WORDS, (TOKENS,), generator=draw)
    targets[[2, 5, 6, 22]] = -100
    return tensors[0], tensors[1], tensors[2] if bias else None, targets


def plain(hidden, weight, targets, bias=None, scale=1.0, softcap=None, **kwargs) -> Tensor:
    logits = F.linear(hidden, weight, bias) * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return F.cross_entropy(logits, targets, **kwargs)


def gradients(loss, *tensors):
    return torch.autograd.grad(loss, [tensor for tensor in tensors if tensor is not None])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"label_smoothing": 0.1},
        {"scale": 0.3},
        {"softcap": 2.0, "scale": 0.7},
        {"softcap": 3.0, "label_smoothing": 0.2},
    ],
)
@pytest.mark.parametrize("chunk", [5, 1000])
def test_loss_and_gradients_are_those_of_the_plain_loss(reduction, bias, more, chunk):
    hidden, weight, offset, targets = made(bias=bias)
    expected = plain(hidden, weight, targets, offset, reduction=reduction, **more)
    loss = linear_cross_entropy(hidden, weight, targets, offset, reduction=reduction, chunk=chunk, **more)
    torch.testing.assert_close(loss, expected)
    for own, other in zip(
        gradients(3 * loss, hidden, weight, offset), gradients(3 * expected, hidden, weight, offset), strict=True
    ):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("more", [{}, {"label_smoothing": 0.1, "softcap": 2.0, "scale": 0.7}])
def test_the_gradients_are_those_of_the_loss(more):
    hidden, weight, bias, targets = made()
    assert torch.autograd.gradcheck(
        lambda *parts: linear_cross_entropy(parts[0], parts[1], targets, parts[2], chunk=7, **more),
        (hidden, weight, bias),
        fast_mode=True,
        nondet_tol=1e-12,  # a second backward pass adds in another order
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_as_near_to_the_truth_as_the_plain_loss_in_its_type(dtype):
    hidden, weight, bias, targets = made(dtype)
    exact = [part.detach().double().requires_grad_() for part in (hidden, weight, bias)]
    truth = gradients(plain(exact[0], exact[1], targets, exact[2]), *exact)
    usual = gradients(plain(hidden, weight, targets, bias), hidden, weight, bias)
    own = gradients(linear_cross_entropy(hidden, weight, targets, bias, chunk=7), hidden, weight, bias)
    for mine, theirs, true in zip(own, usual, truth, strict=True):
        assert mine.dtype == theirs.dtype == dtype
        error, other = (float((part.double() - true).norm() / true.norm()) for part in (mine, theirs))
        assert error <= 1.5 * other + 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_products_are_in_its_type_and_gradients_in_that_of_the_weights(dtype):
    hidden, weight, bias, targets = made(torch.float32)
    with torch.autocast("cpu", dtype):
        expected = plain(hidden, weight, targets, bias)
        loss = linear_cross_entropy(hidden, weight, targets, bias, chunk=7)
    assert loss.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(loss, expected)
    for own, other in zip(
        gradients(loss, hidden, weight, bias), gradients(expected, hidden, weight, bias), strict=True
    ):
        assert own.dtype == torch.float32
        assert (own - other).norm() <= 2e-2 * other.norm()


def test_in_float16_the_factor_of_a_scaler_comes_before_the_rounding():
    hidden, weight, _, targets = made(torch.float32, bias=False)
    scale = 2.0**16
    with torch.autocast("cpu", torch.float16):
        small = 1e-6 * linear_cross_entropy(hidden, weight, targets, chunk=7)
        expected = 1e-6 * plain(hidden, weight, targets)
    for own, other in zip(
        gradients(scale * small, hidden, weight), gradients(scale * expected, hidden, weight), strict=True
    ):
        assert own.any()
        assert (own - other).norm() <= 1e-2 * other.norm()


def test_where_no_target_counts_the_mean_is_not_a_number_and_its_gradients_are_zeros_as_in_torch():
    hidden, weight, bias, targets = made()
    targets.fill_(-100)
    for function in (plain, linear_cross_entropy):
        loss = function(hidden, weight, targets, bias)
        assert loss.isnan()
        assert all(not gradient.any() for gradient in gradients(loss, hidden, weight, bias))
    assert linear_cross_entropy(hidden, weight, targets, bias, reduction="sum") == 0


def test_another_ignored_target_and_leading_dimensions():
    hidden, weight, bias, targets = made()
    targets = targets.clamp(min=0)
    loss = linear_cross_entropy(hidden.view(1, TOKENS, -1), weight, targets.view(1, -1), bias, ignore_index=0)
    torch.testing.assert_close(loss, plain(hidden, weight, targets, bias, ignore_index=0))


def test_a_second_backward_pass_gives_the_same_again():
    hidden, weight, bias, targets = made(torch.float32)
    loss = linear_cross_entropy(hidden, weight, targets, bias, chunk=7)
    parts = (hidden, weight, bias)
    first = torch.autograd.grad(loss, parts, retain_graph=True)
    kept = [part.clone() for part in first]
    for part in first:
        part.zero_()  # whoever got it may do so
    for own, other in zip(torch.autograd.grad(2 * loss, parts), kept, strict=True):
        torch.testing.assert_close(own, 2 * other)


def test_used_twice_and_tied_with_the_embedding():
    def train(loss_of):
        torch.manual_seed(0)
        embedding = nn.Embedding(WORDS, FEATURES, dtype=torch.float64)
        words = torch.arange(TOKENS)
        hidden = torch.tanh(embedding(words))
        loss = loss_of(hidden[:-1], embedding.weight, words[1:]) + 0.5 * loss_of(
            hidden[1:], embedding.weight, words[:-1]
        )
        loss.backward()
        return embedding.weight.grad

    torch.testing.assert_close(train(lambda *parts: linear_cross_entropy(*parts, chunk=5)), train(plain))


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_gets_no_gradient(frozen):
    parts = list(made())
    parts[frozen] = parts[frozen].detach()
    hidden, weight, bias, targets = parts
    trained = [part for part in (hidden, weight, bias) if part.requires_grad]
    with LargestTensor() as seen:
        loss = linear_cross_entropy(hidden, weight, targets, bias, chunk=5)
    own = torch.autograd.grad(loss, trained)
    for mine, theirs in zip(own, torch.autograd.grad(plain(hidden, weight, targets, bias), trained), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert parts[frozen].grad is None
    assert frozen != 1 or seen.of_shape((WORDS, FEATURES)) == 0


def test_without_gradients_none_are_computed():
    hidden, weight, bias, targets = made()
    with torch.no_grad(), LargestTensor() as seen:
        loss = linear_cross_entropy(hidden, weight, targets, bias, chunk=5)
    assert not loss.requires_grad
    assert seen.of_shape((WORDS, FEATURES)) == seen.of_shape((TOKENS, FEATURES)) == 0


@pytest.mark.parametrize("autocast", [False, True])
def test_logits_of_all_tokens_never_exist(autocast):
    tokens, words, features = 96, 256, 4
    hidden = torch.randn(tokens, features, requires_grad=True)
    weight = torch.randn(words, features, requires_grad=True)
    targets = torch.randint(0, words, (tokens,))
    with LargestTensor() as seen:
        with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            loss = linear_cross_entropy(hidden, weight, targets, chunk=8)
        loss.backward()
    assert seen.largest <= 8 * words
    with LargestTensor() as seen:
        plain(hidden, weight, targets).backward()
    assert seen.largest == tokens * words


def test_a_weight_that_was_changed_in_between_is_refused_as_torch_does():
    hidden, weight, _, targets = made(bias=False)
    loss = linear_cross_entropy(hidden, weight, targets)
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_can_be_differentiated_again():
    hidden, weight, bias, targets = made()

    def penalised(loss_of):
        loss = loss_of(hidden, weight, targets, bias)
        (gradient,) = torch.autograd.grad(loss, hidden, create_graph=True)
        return torch.autograd.grad(loss + gradient.square().sum(), (hidden, weight, bias))

    for own, other in zip(penalised(linear_cross_entropy), penalised(plain), strict=True):
        torch.testing.assert_close(own, other)


def test_under_torch_func_it_is_the_plain_loss():
    hidden, weight, bias, targets = made(requires_grad=False)
    own = torch.func.grad(lambda w: linear_cross_entropy(hidden, w, targets, bias))(weight)
    torch.testing.assert_close(own, torch.func.grad(lambda w: plain(hidden, w, targets, bias))(weight))
    each = torch.func.vmap(lambda h, t: linear_cross_entropy(h[None], weight, t[None], reduction="sum"))(
        hidden, targets
    )
    torch.testing.assert_close(each, F.cross_entropy(F.linear(hidden, weight), targets, reduction="none"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reduction": "none"}, "use 'mean' or 'sum'"),
        ({"chunk": 0}, "whole number"),
        ({"label_smoothing": 1.5}, "between 0 and 1"),
        ({"softcap": 0.0}, "above 0"),
        ({"targets": torch.zeros(3, dtype=torch.long)}, "one for each token"),
        ({"weight": torch.zeros(WORDS, 3)}, "(vocabulary, features)"),
        ({"bias": torch.zeros(3)}, "one number a word"),
        ({"targets": [1, 2, 3]}, "targets is a list"),
    ],
)
def test_mistakes_are_told_in_one_sentence(change, said):
    hidden, weight, bias, targets = made()
    arguments = {"hidden": hidden, "weight": weight, "bias": bias, "targets": targets, **change}
    with pytest.raises(ConfigError) as error:
        brim.linear_cross_entropy(**arguments)
    assert said in str(error.value)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_on_a_gpu_captured_and_eager_are_as_near_as_the_plain_loss(dtype):
    torch.manual_seed(0)
    hidden = torch.randn(512, 64, device="cuda", requires_grad=True)
    weight = torch.randn(5003, 64, device="cuda", requires_grad=True)
    targets = torch.randint(0, 5003, (512,), device="cuda")
    targets[::7] = -100

    def step(loss_of):
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            loss = loss_of(hidden, weight, targets)
        gradients = torch.autograd.grad(loss * 8, (hidden, weight))
        return (loss.detach(), *gradients)  # a graph that is kept ties the next one's gradients to its own stream

    def chunked():
        return step(lambda *parts: linear_cross_entropy(*parts, chunk=128))

    expected = step(plain)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        eager = chunked()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chunked()
    graph.replay()
    for own, replayed, other in zip(eager, captured, expected, strict=True):
        torch.testing.assert_close(own, replayed)
        assert (own - other).norm() <= 2e-2 * other.norm()


@pytest.mark.parametrize("wrong", [5, -1])
def test_a_target_that_is_no_word_is_told_as_torch_tells_it(wrong):
    hidden, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    targets = torch.tensor([0, wrong, -100])
    for loss in (
        lambda: F.cross_entropy(F.linear(hidden, weight), targets),
        lambda: linear_cross_entropy(hidden, weight, targets),
    ):
        with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
            loss()
