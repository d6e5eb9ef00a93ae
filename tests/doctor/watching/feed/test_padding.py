import pytest
import torch

from brim.doctor.watching.feed.padding import padded_share

TOKENS = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7], [7, 6, 0, 0, 0, 0, 0, 0]])
FEATURES = torch.arange(1.0, 49.0).reshape(2, 8, 3) * torch.tensor([8, 2])[:, None, None].gt(torch.arange(8)[:, None])


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": TOKENS, "attention_mask": TOKENS.ne(0).long()},
        (TOKENS.ne(0), torch.tensor([1, 0])),
        [TOKENS.flip(1)],  # padded in front
        {"lengths": torch.tensor([8, 2]), "features": FEATURES},
    ],
)
def test_padding_is_what_fills_the_ends_of_sequences(batch):
    assert padded_share([batch, batch]) == 6 / 16


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(4, 20, dtype=torch.long),  # nothing but one value
        torch.tensor([[0, 1] * 8, [1, 0] * 8]),  # answers to many questions
        torch.ones(4, 28, 28),
        torch.cat([torch.zeros(2, 8, 28), torch.ones(2, 8, 28), torch.zeros(2, 8, 28)], 1),  # pictures with a border
        torch.tensor([[1, 0, 0], [1, 1, 0]]),  # columns of a table
        torch.ones(4),
        "text",
    ],
)
def test_what_is_no_sequence_has_no_padding(batch):
    assert padded_share([batch]) == 0.0
