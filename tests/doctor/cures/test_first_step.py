import gc

import pytest
import torch
from torch.optim import optimizer as optimizers

from brim.doctor.cures.first_step import freeze_garbage_at_first_step, fuse_at_first_step


@pytest.fixture(autouse=True)
def hooks_removed():
    before = dict(optimizers._global_optimizer_pre_hooks)
    yield
    optimizers._global_optimizer_pre_hooks.clear()
    optimizers._global_optimizer_pre_hooks.update(before)
    gc.unfreeze()


def trained(optimizer, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    made = optimizer(model.parameters(), lr=0.01, **options)
    for _ in range(10):
        made.zero_grad()
        model(torch.ones(3, 4)).pow(2).mean().backward()
        made.step()
    return made, torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_a_fused_update_is_the_same_but_for_rounding(optimizer):
    _, plain = trained(optimizer)
    fuse_at_first_step()
    made, fused = trained(optimizer)
    assert made.param_groups[0]["fused"]
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)


def test_an_optimizer_without_a_fused_form_stays():
    fuse_at_first_step()
    made, _ = trained(torch.optim.RMSprop)
    assert "fused" not in made.param_groups[0]


def test_what_is_alive_at_the_first_step_is_frozen():
    freeze_garbage_at_first_step()
    assert gc.get_freeze_count() == 0
    trained(torch.optim.SGD)
    assert gc.get_freeze_count() > 0
