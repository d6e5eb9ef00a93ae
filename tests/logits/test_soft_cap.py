import torch

from brim.logits.soft_cap import soft_capped


def test_without_a_cap_and_a_scale_logits_are_themselves():
    logits = torch.randn(3)
    assert soft_capped(logits, 1.0, None) is logits
    torch.testing.assert_close(soft_capped(logits, 0.5, None), logits / 2)


def test_a_cap_bends_as_gemma_does():
    logits = 100 * torch.randn(50)
    bent = soft_capped(logits, 1.0, 30.0)
    torch.testing.assert_close(bent, torch.tanh(logits / 30.0) * 30.0)
    assert bent.abs().max() <= 30
