"""flex_attention trains in a forecast, though the CPU's has no backward pass."""

import torch
from torch import nn
from torch.nn.attention import flex_attention as flex

from brim.memory.forecast import forecast

WIDTH, LENGTH = 16, 256
compiled = torch.compile(flex.flex_attention)


class Attends(nn.Module):
    """Four heads of a projection each, to see gradients of all three inputs."""

    def __init__(self, attention=compiled, biased: bool = False):
        super().__init__()
        self.project = nn.Linear(64, 3 * 64, bias=False)
        self.bias = nn.Parameter(torch.zeros(4, LENGTH, LENGTH)) if biased else None
        self.attention = attention

    def forward(self, x):
        query, key, value = self.project(x).view(len(x), LENGTH, 3, 4, WIDTH).permute(2, 0, 3, 1, 4)
        blocks = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, LENGTH, LENGTH, device=x.device)
        own = None if self.bias is None else (lambda score, b, h, i, j: score + self.bias[h, i, j])
        return self.attention(query, key, value, score_mod=own, block_mask=blocks).square().mean()


def of(model, precision="32"):
    return forecast(
        model, lambda n: ((torch.empty(n, LENGTH, 64),), {}), lambda loss: loss, batch_size=8, precision=precision,
        card="NVIDIA H200",
    )  # fmt: skip


def test_it_trains_and_scores_are_never_kept():
    scores = 8 * 4 * LENGTH * LENGTH * 4
    for precision in ("32", "bf16"):
        made = of(Attends, precision)
        assert made.notes == ()
        assert made.parts["activations"] + made.parts["temporary"] < scores


def test_a_bias_that_is_trained_has_a_gradient_and_optimizer_state():
    more = of(lambda: Attends(biased=True)).parts["optimizer"] - of(Attends).parts["optimizer"]
    assert more == 2 * 4 * LENGTH * LENGTH * 4 + 512  # Adam's two, and its counter


def test_without_compile_a_note_says_that_it_takes_more():
    assert any("without torch.compile" in note for note in of(lambda: Attends(flex.flex_attention)).notes)


def test_afterwards_torchs_own_is_as_before():
    before = flex.flex_attention_hop, flex._validate_device, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    of(Attends)
    assert (flex.flex_attention_hop, flex._validate_device, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG) == before
