"""Logits that wait: what can be asked of them before they are computed, and what computes them."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

from brim.errors import ModelError
from brim.logits.pending_logits import PendingLogits


def pending(told=None):
    torch.manual_seed(0)
    hidden, weight = torch.randn(6, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    return PendingLogits.of(hidden, weight, None, (told if told is not None else []).append), hidden, weight


def test_shape_type_and_device_are_known_without_computing():
    told = []
    logits, _, _ = pending(told)
    assert (logits.shape, logits.size(-1), logits.dim(), len(logits), logits.numel()) == ((6, 5), 5, 2, 6, 30)
    assert (logits.dtype, logits.device.type, logits.requires_grad) == (torch.float32, "cpu", True)
    assert told == []


def test_class_weights_and_losses_by_token_need_all_logits():
    for more in ({"weight": torch.rand(5)}, {"reduction": "none"}):
        told = []
        logits, hidden, weight = pending(told)
        targets = torch.arange(6) % 5
        torch.testing.assert_close(
            F.cross_entropy(logits, targets, **more), F.cross_entropy(F.linear(hidden, weight), targets, **more)
        )
        assert told == ["cross_entropy"]


def test_probabilities_as_targets_need_all_logits():
    logits, hidden, weight = pending()
    targets = torch.rand(6, 5).softmax(-1)
    expected = F.cross_entropy(F.linear(hidden, weight), targets)
    torch.testing.assert_close(F.cross_entropy(input=logits, target=targets), expected)


def test_computed_without_gradients_first_they_still_have_them():
    logits, hidden, weight = pending()
    with torch.no_grad():
        logits.argmax(-1)
    logits.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is not None


def test_nothing_keeps_them_alive():
    logits, _, _ = pending()
    F.cross_entropy(logits.float().view(-1, 5), torch.arange(6) % 5).backward()
    gone = weakref.ref(logits)
    del logits
    gc.collect()
    assert gone() is None


def test_after_the_weights_were_changed_they_are_refused():
    for use in (torch.sum, torch.Tensor.float, lambda logits: F.cross_entropy(logits, torch.arange(6) % 5)):
        logits, hidden, weight = pending()
        loss = F.cross_entropy(logits, torch.arange(6) % 5)
        loss.backward()
        torch.optim.SGD([weight], lr=1.0).step()
        with pytest.raises(ModelError, match="after the last layer's weights or inputs were changed"):
            use(logits)
        logits, hidden, weight = pending()
        with torch.no_grad():
            hidden.zero_()
        with pytest.raises(ModelError, match="after the last layer's weights or inputs were changed"):
            use(logits)


def test_what_waits_for_gradients_of_logits_is_refused_once_their_loss_has_none_for_them():
    for ask in (
        lambda logits, loss: logits.register_hook(torch.neg),
        lambda logits, loss: logits.retain_grad(),
        lambda logits, loss: torch.autograd.grad(loss, logits),
    ):
        logits, _, _ = pending()
        loss = F.cross_entropy(logits, torch.arange(6) % 5)
        with pytest.raises(ModelError, match="gradients of logits whose loss was computed in chunks"):
            ask(logits, loss)
    logits, hidden, weight = pending()
    logits.register_hook(lambda gradient: gradient * 2)  # before the loss, which then has all logits
    F.cross_entropy(logits, torch.arange(6) % 5).backward()
    expected, _ = torch.autograd.grad(F.cross_entropy(F.linear(hidden, weight), torch.arange(6) % 5), (hidden, weight))
    torch.testing.assert_close(hidden.grad, 2 * expected)


def test_what_is_written_into_a_contiguous_copy_is_not_seen_in_the_logits():
    logits, hidden, weight = pending()
    shifted = logits.view(2, 3, 5)[..., :-1, :].contiguous()
    shifted[..., 2] = -1e9
    shifted.view(-1, 5).sum().backward()  # it is contiguous
    torch.testing.assert_close(torch.as_tensor(logits.detach()), F.linear(hidden, weight).detach())
