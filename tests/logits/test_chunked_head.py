"""Models of transformers whose logits wait for their loss, beside the same models as they are."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks

from brim.errors import ConfigError, ModelError
from brim.logits.chunked_head import check_chunked, chunked_logits, why_whole
from brim.logits.pending_logits import PendingLogits
from tests.helpers.language_models import FAMILIES, language_batch, language_model
from tests.helpers.largest_tensor import LargestTensor


def step(model, batch, **more):
    model.zero_grad()
    torch.manual_seed(0)
    output = model(**batch, **more)
    output.loss.backward()
    return output, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("by_items", [False, True])
def test_loss_and_gradients_are_those_of_the_plain_model(name, by_items):
    model, batch = language_model(name), language_batch()
    more = {"num_items_in_batch": torch.tensor(11)} if by_items and name not in ("t5", "bart") else {}
    plain, expected = step(model, batch, **more)
    told = []
    with chunked_logits(model, "chunked", told.append), LargestTensor() as seen:
        output, gradients = step(model, batch, **more)
        assert type(output.logits) is PendingLogits
        assert output.logits.shape == plain.logits.shape
        assert output.logits.dtype == plain.logits.dtype
    assert told == []
    assert seen.of_shape(plain.logits.shape) == 0
    torch.testing.assert_close(output.loss, plain.loss)
    assert gradients.keys() == expected.keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[key], msg=key)
    torch.testing.assert_close(torch.as_tensor(output.logits.detach()), plain.logits.detach())
    assert told != []


@pytest.mark.parametrize("name", ["gpt2", "t5", "gemma2", "bart"])
def test_under_autocast(name):
    model, batch = language_model(name), language_batch()
    with torch.autocast("cpu", torch.bfloat16):
        plain, expected = step(model, batch)
        with chunked_logits(model, "chunked"):
            output, gradients = step(model, batch)
    assert output.loss.dtype == plain.loss.dtype
    assert output.logits.dtype == plain.logits.dtype
    torch.testing.assert_close(output.loss, plain.loss, rtol=1e-2, atol=1e-2)
    for key, gradient in gradients.items():
        assert (gradient - expected[key]).norm() <= 0.05 * expected[key].norm() + 1e-5, key


def test_where_no_gradient_is_wanted_logits_are_tensors():
    model, batch = language_model("gpt2"), language_batch()
    with chunked_logits(model, "chunked"), torch.no_grad():
        assert type(model(**batch).logits) is torch.Tensor


def test_the_layer_is_as_before_afterwards_also_after_an_error():
    model = language_model("gpt2")
    with pytest.raises(KeyError), chunked_logits(model, "chunked"):
        assert "forward" in vars(model.lm_head)
        raise KeyError
    assert "forward" not in vars(model.lm_head)
    assert type(model(**language_batch()).logits) is torch.Tensor


def test_a_copy_computes_with_its_own_weights():
    model, batch = language_model("gpt2"), language_batch()
    with chunked_logits(model, "chunked"):
        copied = copy.deepcopy(model)
        pickled = pickle.loads(pickle.dumps(model.lm_head))
        with torch.no_grad():
            copied.lm_head.weight.zero_()
        loss = copied(**batch).loss
        assert type(copied(**batch).logits) is PendingLogits
    torch.testing.assert_close(loss, torch.tensor(copied.config.vocab_size).log())
    assert "forward" in vars(copied.lm_head)
    torch.testing.assert_close(pickled.weight, model.lm_head.weight)


def test_what_a_user_does_with_the_logits_gives_what_it_would_give():
    model, batch = language_model("gpt2"), language_batch()

    def loss_of(model):
        logits = model(input_ids=batch["input_ids"]).logits
        with torch.no_grad():
            right = (logits.argmax(-1) == batch["input_ids"]).float().mean()
        half = logits / 2  # made before the writing below, so it stays as it is
        logits[:, 0] = 0
        logits.mul_(3)
        later = logits[:, 1:]
        return later.logsumexp(-1).mean() + half.square().mean() + F.cross_entropy(
            logits[0], batch["input_ids"][0]
        ), right

    expected, right = loss_of(model)
    gradients = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)
    told = []
    with chunked_logits(model, "chunked", told.append):
        loss, own_right = loss_of(model)
        own = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    torch.testing.assert_close(loss, expected)
    assert right == own_right
    for gradient, other in zip(own, gradients, strict=True):
        torch.testing.assert_close(gradient, other)
    assert len(told) == 1
    assert "argmax uses all logits" in told[0]


def test_the_usual_ways_to_a_loss_of_ones_own_are_followed():
    model, batch = language_model("gpt2"), language_batch()
    labels = batch["labels"]
    ways = [
        lambda logits: F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1)),
        lambda logits: F.cross_entropy(
            logits[..., :-1, :].contiguous().view(-1, logits.shape[-1]), labels[:, 1:].flatten()
        ),
        lambda logits: nn.CrossEntropyLoss(label_smoothing=0.1)(
            logits.float().view(-1, logits.shape[-1]), labels.view(-1)
        ),
        lambda logits: F.cross_entropy((0.5 * logits).reshape(-1, logits.shape[-1]), labels.view(-1), reduction="sum"),
    ]
    for way in ways:
        expected = way(model(input_ids=batch["input_ids"]).logits)
        told = []
        with chunked_logits(model, "chunked", told.append):
            loss = way(model(input_ids=batch["input_ids"]).logits)
        torch.testing.assert_close(loss, expected)
        assert told == []


def test_models_without_such_a_layer_are_refused_in_one_sentence():
    with pytest.raises(ConfigError, match=r"use brim\.linear_cross_entropy in its loss"):
        check_chunked(nn.Linear(2, 1), "chunked")
    model = language_model("gpt2")
    model.lm_head = nn.Sequential(model.lm_head)
    assert "is a Sequential" in str(why_whole(model))
    with chunked_logits(model, "auto"):  # where it can be
        assert type(model(**language_batch()).logits) is torch.Tensor
    with pytest.raises(ConfigError, match="'whole', 'chunked', 'auto'"):
        check_chunked(model, "some")


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_backward_hook_of_the_last_layer_gets_all_logits(register):
    model, batch, seen, told = language_model("gpt2"), language_batch(), [], []
    getattr(model.lm_head, register)(lambda *arguments: seen.append(arguments[-1][0].clone()))
    _, expected = step(model, batch)
    with chunked_logits(model, "chunked", told.append):
        _, gradients = step(model, batch)
    torch.testing.assert_close(seen[1], seen[0])
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[key], msg=key)
    assert len(told) == 1 and "a backward hook of the last layer" in told[0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_that_outlives_the_run_computes_as_before_and_can_be_trained_in_chunks(copied):
    model, batch = language_model("gpt2"), language_batch()
    with chunked_logits(model, "chunked"):
        own = copied(model)
    _, expected = step(model, batch)
    output, gradients = step(own, batch)
    assert type(output.logits) is torch.Tensor
    assert all(torch.equal(gradient, expected[key]) for key, gradient in gradients.items())
    with chunked_logits(own, "chunked"):
        assert type(step(own, batch)[0].logits) is PendingLogits
    assert type(step(own, batch)[0].logits) is torch.Tensor


def test_steps_of_a_fused_optimizer_count_though_torch_does_not_count_its_writing():
    model, batch = language_model("gpt2"), language_batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    with chunked_logits(model, "chunked"):
        output, _ = step(model, batch)
        optimizer.step()
        with pytest.raises(ModelError, match="after the last layer's weights or inputs were changed"):
            output.logits.sum()
    hooks = len(_global_optimizer_pre_hooks)
    with chunked_logits(model, "chunked"):
        assert len(_global_optimizer_pre_hooks) == hooks + 1
    assert len(_global_optimizer_pre_hooks) == hooks
