"""``Trainer(fit="auto")`` where there is no GPU, and where it cannot be."""

import pytest
import torch
from helpers.language_models import language_batch, language_model
from torch import nn

import brim
from brim.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")


def trained(**settings):
    model = language_model("gpt2")
    trainer = brim.Trainer(model, [language_batch(4)] * 2, device="cpu", threads=1, lr=0.1, optimizer="SGD", **settings)
    trainer.fit()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), model


def test_on_a_cpu_it_is_the_same_training_to_the_bit_and_leaves_the_model_as_it_was():
    plain, _ = trained()
    fitted, model = trained(fit="auto")
    assert torch.equal(plain, fitted)
    assert "forward" not in vars(model.lm_head)


@pytest.mark.parametrize("strategy", ["fsdp", "dp"])
def test_what_is_not_planned_is_refused(strategy):
    with pytest.raises(ConfigError, match=f"fit='auto' plans one GPU.*strategy='{strategy}'"):
        brim.Trainer(
            nn.Linear(2, 1), [(torch.ones(2, 2), torch.ones(2, 1))], device="cpu", strategy=strategy, fit="auto"
        )


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match="fit='fast' is not known"):
        brim.Trainer(nn.Linear(2, 1), [(torch.ones(2, 2), torch.ones(2, 1))], device="cpu", fit="fast")
