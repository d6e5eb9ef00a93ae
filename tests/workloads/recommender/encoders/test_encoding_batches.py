import pytest
import torch

from brim.workloads.recommender.encoders.encoding_batches import encoding_batches, texts_that_fit
from brim.workloads.recommender.text_encoder import TextEncoder, Tokens


@pytest.mark.parametrize("most_tokens", [1, 7, 40, 1000])
def test_every_text_is_in_one_batch_and_batches_hold_no_more_than_they_may(most_tokens):
    lengths = torch.randint(1, 20, (50,), generator=torch.Generator().manual_seed(0))
    batches = list(encoding_batches(lengths, most_tokens))
    assert torch.cat(batches).sort().values.tolist() == list(range(50))
    assert all(len(rows) == 1 or len(rows) * lengths[rows].max() <= most_tokens for rows in batches)
    longest = [int(lengths[rows].max()) for rows in batches]
    assert longest == sorted(longest)


@pytest.mark.slow
def test_the_forecast_lets_more_texts_into_more_memory():
    encoder = TextEncoder()

    def batch(n):
        return Tokens(torch.zeros(n, 64, dtype=torch.long), torch.full((n,), 64))

    small, large = (texts_that_fit(encoder, batch, size << 20, card="NVIDIA H200") for size in (64, 512))
    assert 1 < 4 * small < large
    assert all(parameter.grad is None for parameter in encoder.parameters())


def test_what_does_not_fit_is_tried_one_by_one():
    encoder = TextEncoder()
    texts = Tokens(torch.zeros(1, 64, dtype=torch.long), torch.full((1,), 64))
    assert texts_that_fit(encoder, lambda n: texts, 1 << 10, card="NVIDIA H200") == 1
