import pytest
import torch

from brim.engine.numbers.summed_loss import Loss


@pytest.mark.parametrize("count", [4, torch.tensor(4), torch.tensor(4.0)])
def test_its_mean_is_the_total_over_the_count(count):
    total = torch.tensor(10.0, requires_grad=True)
    mean = Loss(total, count).mean
    mean.backward()
    assert (float(mean.detach()), float(total.grad)) == (2.5, 0.25)


@pytest.mark.parametrize("count", [0, torch.tensor(0), torch.tensor(0.0)])
def test_where_nothing_counts_no_nan_reaches_the_weights(count):
    weight = torch.tensor(3.0, requires_grad=True)
    Loss(weight * 0, count).mean.backward()
    assert float(weight.grad) == 0.0


def test_it_cannot_be_changed():
    with pytest.raises(AttributeError):
        Loss(torch.tensor(1.0), 1).count = 2
