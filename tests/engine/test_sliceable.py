import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from brim.engine.loss import Loss, loss_of
from brim.engine.sliceable import why_not_sliceable


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))


def batch(size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 4, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def cross_entropy_to(others):
    """Contrastive: the right one of all the others in the batch."""
    return lambda x: nn.functional.cross_entropy(x @ others(x).T, torch.arange(len(x)))


def in_batch_negatives(model, data):
    return cross_entropy_to(lambda x: x.roll(1, 1))(model(data[0]))


def batch_hard(model, data):
    return torch.cdist(model(data[0]), model(data[0])).amax(1).mean()


def mean_over_tokens(model, data):
    counted = data[1] > 0
    return (model(data[0]).square().mean(1) * counted).sum() / counted.sum()


def tokens_counted(model, data):
    counted = data[1] > 0
    return Loss((model(data[0]).square().mean(1) * counted).sum(), counted.sum())


def summed(model, data):
    return model(data[0]).square().sum()


def asked(loss_fn, data=None, model=None):
    model = model or net()
    return why_not_sliceable(loss_of(model, loss_fn), model, batch() if data is None else data)


@pytest.mark.parametrize("loss_fn", [in_batch_negatives, batch_hard, mean_over_tokens, summed])
def test_losses_that_slices_would_change_are_found_out(loss_fn):
    reason = asked(loss_fn)
    assert "the loss of 8 samples is" in reason
    assert "brim.Loss(total, count)" in reason
    assert "sliceable=True" in reason


@pytest.mark.parametrize("loss_fn", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=0), tokens_counted])
@pytest.mark.parametrize("size", [2, 3, 8, 21])
def test_losses_that_slices_do_not_change_are_accepted(loss_fn, size):
    assert asked(loss_fn, batch(size)) is None


def test_a_batch_of_one_cannot_tell():
    assert asked(in_batch_negatives, batch(1)) is None


@given(st.integers(2, 40), st.integers(0, 1000))
def test_a_plain_mean_is_always_accepted(size, seed):
    assert asked(nn.CrossEntropyLoss(), batch(size, seed)) is None


def test_a_loss_of_zero_is_accepted():
    assert asked(lambda model, data: model(data[0]).sum() * 0) is None


def test_modes_generators_statistics_and_gradients_are_left_alone():
    model = net()
    model[2].eval()
    modes = [module.training for module in model.modules()]
    buffers = [buffer.clone() for buffer in model.buffers()]
    state = torch.get_rng_state()

    def noisy(model, data):
        return (model(data[0]) + torch.rand(()) * 0).square().mean()

    asked(noisy, model=model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_come_back_after_an_error_as_well():
    model = net()

    def failing(model, data):
        raise ValueError("CUDA out of memory.")

    with pytest.raises(ValueError):
        asked(failing, model=model)
    assert all(module.training for module in model.modules())


def test_a_few_samples_are_asked_about_and_not_the_batch_that_did_not_fit():
    seen = []
    asked(lambda model, data: seen.append(len(data[0])) or model(data[0]).square().mean(), batch(100))
    assert seen == [8, 4, 4]


def test_rounding_of_half_precision_is_no_reason():
    model = net().bfloat16()
    data = (batch(8)[0].bfloat16(), batch(8)[1])
    assert asked(nn.CrossEntropyLoss(), data, model) is None


def test_a_loss_without_a_model_can_be_asked_about():
    assert why_not_sliceable(lambda data: data[0].square().mean(), None, batch()) is None
