"""Model code that hands numbers to numpy, and takes others from it."""

import numpy as np
import pytest
import torch
from torch import nn

from brim.errors import ModelError
from brim.memory.forecast import forecast


class Matches(nn.Module):
    """Rows are put into an order that is found on the host, as DETR does."""

    def __init__(self, seen: list, detaches: bool = True):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.seen, self.detaches = seen, detaches

    def forward(self, x, ids):
        rows = self.layer(x)
        costs = np.asarray(torch.cdist(rows, rows).detach().cpu()) if self.detaches else rows.numpy()
        self.seen += [ids.cpu().numpy().tolist(), costs.shape, costs.dtype]
        order = torch.from_numpy(np.argsort(costs.sum(1))).to(x.device)
        return rows[order].square().mean()


def of(seen, detaches=True):
    batch = torch.zeros(4, 8), torch.tensor([[3, 1], [4, 1], [5, 9], [2, 6]])
    return forecast(lambda: Matches(seen, detaches), lambda n: (batch, {}), lambda loss: loss, batch_size=4, card="T4")


def test_what_is_known_is_as_it_is_and_what_is_not_are_zeros_with_a_note():
    seen: list = []
    notes = of(seen).notes
    assert seen[:3] == [[[3, 1], [4, 1], [5, 9], [2, 6]], (4, 4), np.float32]
    assert len(notes) == 1
    assert notes[0].startswith("an array was asked for at ")
    assert notes[0].endswith("that only the data knows: zeros were taken")


def test_what_torch_refuses_is_refused():
    with pytest.raises(ModelError, match="requires grad"):
        of([], detaches=False)


def test_numbers_that_a_model_puts_into_texts_have_their_format():
    said: list = []

    class Speaks(nn.Linear):
        def forward(self, x):
            said.append(f"{x.sum():.3f}")
            return super().forward(x)

    forecast(lambda: Speaks(8, 8), lambda n: ((torch.zeros(n, 8),), {}), batch_size=4, card="T4")
    assert said[0] == "0.000"
