import pytest
import torch

from brim.workloads.recommender.serving.fold_in import fold_in


@pytest.fixture
def vectors():
    return torch.randn(30, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_the_vector_is_where_the_gradient_of_the_loss_is_zero(vectors, scale):
    vectors, watched, mean = scale * vectors, torch.tensor([3, 7, 7, 20]), torch.ones(5)
    found = fold_in(vectors, watched, mean, precision=2.0).double().requires_grad_()
    likely = torch.log_softmax(vectors.double() @ found, 0)[watched]
    (-likely.sum() + (found - mean).square().sum()).backward()
    assert found.grad.abs().max() < 1e-3 * scale


def test_a_strong_prior_is_the_mean_of_everybody(vectors):
    mean = torch.arange(5.0)
    torch.testing.assert_close(fold_in(vectors, torch.tensor([1]), mean, precision=1e9), mean, atol=1e-4, rtol=0)


def test_what_was_watched_scores_higher_than_before(vectors):
    watched, mean = torch.tensor([4, 9]), torch.zeros(5)
    scores = vectors @ fold_in(vectors, watched, mean, precision=1.0)
    assert scores[watched].mean() > scores.mean()
