"""How many tokens a chunk has, and what is made for gradients that are wanted and those that are not."""

import torch

from brim.logits.chunks import LOGITS, ROWS, ChunkRule, gradients_of, loss_and_gradients


def test_a_chunk_has_as_many_tokens_as_its_logits_may_take():
    for words in (5, 1000, 32_000, 50_257, 151_936, LOGITS, 2 * LOGITS):
        rows = ChunkRule().rows(words)
        assert rows >= 1
        assert rows * words <= max(LOGITS, words)
        assert rows < ROWS or rows % ROWS == 0


def test_gradients_of_the_forward_pass_times_the_factor_are_those_of_the_backward_pass():
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(9, 4), torch.randn(7, 4), torch.randn(7)
    targets = torch.tensor([0, 1, 2, -100, 4, 5, 6, -100, 1])
    rule, factor = ChunkRule(chunk=4, label_smoothing=0.1), torch.tensor(0.3)
    _, share, first = loss_and_gradients(hidden, weight, bias, targets, rule, torch.float32, (True, True, True))
    assert float(share) == 1 / torch.tensor(7.0)
    first.scale_(factor)
    later = gradients_of(hidden, weight, bias, targets, rule, torch.float32, (True, True, True), factor)
    for own, other in zip(first.like(hidden, weight, bias), later.like(hidden, weight, bias), strict=True):
        torch.testing.assert_close(own, other)


def test_what_is_not_wanted_is_not_made():
    hidden, weight = torch.randn(9, 4), torch.randn(7, 4)
    rule, targets = ChunkRule(), torch.zeros(9, dtype=torch.long)
    _, _, made = loss_and_gradients(hidden, weight, None, targets, rule, torch.float32, (True, False, False))
    assert made.hidden is not None
    assert made.weight is None and made.bias is None
