"""A contrastive model: two views of each sample must find each other in the batch. python examples/contrastive.py

Its loss looks across the batch, so parts of a batch are not the same training: brim finds that out by gradients. It
does not split such a batch by itself, and warns where that is asked for.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import brim


class Pairs(nn.Module):
    """Two encoders and a temperature that is learned, as CLIP has them."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.left, self.right = (nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, 32)) for _ in range(2))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def similarities(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        left, right = (F.normalize(encode(x), dim=1) for encode, x in zip((self.left, self.right), batch, strict=True))
        return left @ right.T * self.scale.exp()

    def calculate_loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        found = self.similarities(batch)
        partner = torch.arange(len(found), device=found.device)
        return (F.cross_entropy(found, partner) + F.cross_entropy(found.T, partner)) / 2


def make_views(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, mixing = torch.randn(count, 8, generator=generator), torch.randn(2, 8, 16, generator=generator)
    noise = 0.1 * torch.randn(2, count, 16, generator=generator)
    return hidden @ mixing[0] + noise[0], (hidden @ mixing[1]).tanh() + noise[1]


def make_trainer(count: int = 4_096, epochs: int = 5, **settings: object) -> brim.Trainer:
    torch.manual_seed(0)
    loader = brim.Loader(make_views(count), batch_size=256, drop_last=True)
    return brim.Trainer(Pairs(), loader, optimizer="AdamW", lr=3e-3, epochs=epochs, **settings)


if __name__ == "__main__":
    trainer = make_trainer()
    trainer.fit()
    first = tuple(view[:256] for view in make_views(4_096))
    similarities = trainer.model.eval().cpu().similarities(first)
    found = (similarities.argmax(1) == torch.arange(256)).float().mean()
    print(f"{found:.0%} of 256 samples find their partner")
