import pytest
import torch
import torch.nn.functional as F
from torch import nn

from brim.engine.splitting.without_dropout import without_dropout

X = torch.ones(2, 3, 4)


class Functions(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, True) + F.dropout1d(x, p=0.5, training=True) + F.dropout(x, training=self.training)


class Attention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, None, 0.5)


@pytest.mark.parametrize(
    "model",
    [
        nn.Dropout(0.5), nn.AlphaDropout(0.5), Functions(), Attention(), nn.LSTM(4, 4, 2, dropout=0.5),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_two_passes_give_the_same_and_afterwards_dropout_is_back(model):
    def out():
        found = model(X)
        return found[0] if isinstance(found, tuple) else found

    with without_dropout(model):
        assert torch.equal(out(), out())
    assert not torch.equal(out(), out())


def test_what_functions_drop_can_be_left_to_them():
    with without_dropout(None, in_functions=False):
        assert not torch.equal(F.dropout(X, 0.5), F.dropout(X, 0.5))
    with without_dropout(None):
        assert torch.equal(F.dropout(X, 0.5, inplace=False), X)
