"""Capture trap 5: the graph writes gradients where they were; somebody who clears or replaces them breaks replays."""

import pytest
import torch

pytestmark = pytest.mark.gpu


def clear(number, model, optimizer):
    optimizer.zero_grad(set_to_none=True)


def zero(number, model, optimizer):
    optimizer.zero_grad(set_to_none=False)


def replace(number, model, optimizer):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)


def another_backward(number, model, optimizer):
    """A penalty that somebody looks at between steps, whose gradients are left lying about."""
    model[0].weight.square().sum().backward()


@pytest.mark.parametrize("after", [clear, zero, replace, another_backward])
@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_what_happens_to_gradients_between_steps_does_not_matter(twins, after, clip_norm):
    batches = [tuple(column[i : i + 32] for column in twins.rows()) for i in range(0, 640, 32)] * 2
    settings = {"after": after, "clip_norm": clip_norm}
    eager, captured = (twins.step_through(twins.mlp, batches, how, **settings) for how in ("off", "require"))
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-5


def test_gradients_can_be_read_after_a_step(twins):
    norms = {"off": [], "require": []}
    batches = [tuple(column[i : i + 32] for column in twins.rows()) for i in range(0, 640, 32)] * 2
    for how, seen in norms.items():

        def read(number, model, optimizer, seen=seen):
            gradient = model[0].weight.grad
            seen.append(None if gradient is None else float(gradient.norm()))

        twins.step_through(twins.mlp, batches, how, after=read)
    assert norms["require"] == pytest.approx(norms["off"], rel=1e-4)
