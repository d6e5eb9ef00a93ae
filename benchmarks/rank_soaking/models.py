"""Small models with a weak layer in the middle, and the data that each is trained on. Nothing in them is random."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import brim

WIDTH, WORDS, LENGTH = 16, 13, 5
MakeLayer = Callable[[], nn.Module]


class Blocks(nn.Module):
    """Repeated blocks, each sharded by itself, and a frozen part."""

    def __init__(self, weak_layer: MakeLayer) -> None:
        super().__init__()
        self.first = nn.Linear(6, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.weak = weak_layer()
        self.last = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for number, layer in enumerate(self.blocks):
            x = x + layer(self.weak(x) if number == 1 else x)
        out: Tensor = self.out(torch.tanh(self.last(x)))
        return out


class Tied(nn.Module):
    """Words in, a word out, with the same weights; some targets are not counted."""

    def __init__(self, weak_layer: MakeLayer) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(block(), weak_layer(), block())
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.blocks(self.words(x).mean(1)))
        return out


class Tokens(nn.Module):
    """Samples of different lengths: what counts is tokens, and a rank's share may have none."""

    def __init__(self, weak_layer: MakeLayer) -> None:
        super().__init__()
        self.net = layers(weak_layer)

    def calculate_loss(self, batch: tuple[Tensor, Tensor, Tensor]) -> brim.Loss:
        x, y, lengths = batch
        errors = (self.net(x) - y).square().squeeze(1) * lengths
        return brim.Loss(errors.sum(), lengths.sum())


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH))


def layers(weak_layer: MakeLayer) -> nn.Module:
    return nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh(), weak_layer(), nn.Linear(WIDTH, 1))


KINDS: dict[str, Callable[[MakeLayer], nn.Module]] = {
    "layers": layers,
    "blocks": Blocks,
    "tied": Tied,
    "tokens": Tokens,
}
LOSSES: dict[str, Callable[[], nn.Module | None]] = {
    "layers": nn.MSELoss, "blocks": nn.MSELoss, "tied": nn.CrossEntropyLoss, "tokens": lambda: None,
}  # fmt: skip


def make_data(model: str, samples: int, seed: int) -> tuple[Tensor, ...]:
    """Columns of samples; the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    if model == "tied":
        words = torch.randint(WORDS, (samples, LENGTH), generator=generator)
        ignored = torch.rand(samples, generator=generator) < 0.2
        return words, words[:, 0].where(~ignored, -100)
    x = torch.randn(samples, 6, generator=generator)
    y = x.sin().sum(1, keepdim=True) + 0.1 * torch.randn(samples, 1, generator=generator)
    lengths = torch.randint(0, 9, (samples,), generator=generator).float()
    return (x, y, lengths) if model == "tokens" else (x, y)
