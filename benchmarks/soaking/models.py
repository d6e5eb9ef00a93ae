"""Small models that differ in what a checkpoint has to keep. All map 8 numbers to 1."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import brim

WIDTH = 12


class Small(nn.Module):
    """``before``, a gate where trials can interfere with the hidden state, and ``after``."""

    def __init__(self, before: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.before, self.gate, self.after = before, nn.Identity(), after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.after(self.gate(self.before(x)))
        return out


class Weighted(Small):
    """Computes its own loss, in which samples weigh differently."""

    def calculate_loss(self, batch: tuple[Tensor, Tensor]) -> brim.Loss:
        x, y = batch
        weights = 1 + x[:, :1].abs()
        return brim.Loss((weights * (self(x) - y) ** 2).sum(), weights.sum())


class Words(nn.Module):
    """Numbers as words of an embedding, whose weights are those of the output layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, WIDTH)
        self.out = nn.Linear(WIDTH, 16, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        words: Tensor = self.embedding(x.mul(4).round().long().remainder(16)).mean(1)
        out: Tensor = self.out(words)[:, :WIDTH]
        return words + out


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(2, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.cell(x.view(len(x), 4, 2))[0][:, -1]
        return hidden


def _head(dropout: float) -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.Dropout(dropout), nn.Linear(WIDTH, 1))


MODELS: dict[str, Callable[[float], nn.Module]] = {
    "layers": lambda dropout: Small(nn.Linear(8, WIDTH), _head(dropout)),
    "layer norm": lambda dropout: Small(nn.Sequential(nn.Linear(8, WIDTH), nn.LayerNorm(WIDTH)), _head(dropout)),
    "batch norm": lambda dropout: Small(nn.Sequential(nn.Linear(8, WIDTH), nn.BatchNorm1d(WIDTH)), _head(dropout)),
    "tied": lambda dropout: Small(Words(), _head(dropout)),
    "recurrent": lambda dropout: Small(Recurrent(), _head(dropout)),
    "weighted": lambda dropout: Weighted(nn.Linear(8, WIDTH), _head(dropout)),
}


def make_model(name: str, dropout: float, seed: int) -> nn.Module:
    """The same weights for the same seed, in any process."""
    torch.manual_seed(seed)
    return MODELS[name](dropout)
