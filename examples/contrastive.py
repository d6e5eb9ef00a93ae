"""A contrastive model: two views of each sample must find each other in the batch. python examples/contrastive.py

Its loss looks across the batch, so parts of a batch have another loss. ``brim.TwoPass`` splits it into an encoder,
which computes each sample by itself, and the loss of all encodings: then micro-batches (``micro_batch=32``, or memory
that runs out) train the same, and with ``brim.gather`` so do ranks: torchrun --nproc-per-node=2 examples/contrastive.py
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


def encode(model: Pairs, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return F.normalize(model.left(batch[0]), dim=1), F.normalize(model.right(batch[1]), dim=1)


def contrast(left: Tensor, right: Tensor, model: Pairs) -> Tensor:
    left, right = brim.gather(left), brim.gather(right)  # of all ranks; in one process, what it has
    found = left @ right.T * model.scale.exp()
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
    loss_fn = brim.TwoPass(encode, contrast)
    return brim.Trainer(Pairs(), loader, loss_fn=loss_fn, optimizer="AdamW", lr=3e-3, epochs=epochs, **settings)


if __name__ == "__main__":
    trainer = make_trainer()
    trainer.fit()
    left, right = trainer.predict(tuple(view[:256] for view in make_views(4_096)))
    found = ((left @ right.T).argmax(1) == torch.arange(256)).float().mean()
    print(f"{found:.0%} of 256 samples find their partner")
