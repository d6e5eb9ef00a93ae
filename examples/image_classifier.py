"""Pictures with random shifts, mixup and a moving average of the weights: python examples/image_classifier.py

Ten patterns in noise. Mixup blends each picture with another one of the batch, in the loss function.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import brim

CLASSES = 10


class Pictures(torch.utils.data.Dataset):
    """Shifted anew whenever they are read."""

    def __init__(self, count: int, seed: int, shifts: bool) -> None:
        drawn = torch.Generator().manual_seed(seed)
        patterns = torch.randn(CLASSES, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        self.labels = torch.arange(count) % CLASSES
        self.pictures = patterns[self.labels] + 2 * torch.randn(count, 3, 16, 16, generator=drawn)
        self.shifts = shifts

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        shift = int(torch.randint(-1, 2, ())) if self.shifts else 0
        return self.pictures[number].roll(shift, dims=2), self.labels[number]


def mixed_up(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    pictures, labels = batch
    if not model.training:  # an evaluation
        return F.cross_entropy(model(pictures), labels)
    share = torch.rand(len(pictures), 1, 1, 1, device=pictures.device)
    said = model(share * pictures + (1 - share) * pictures.flip(0))
    own, other = (F.cross_entropy(said, which, reduction="none") for which in (labels, labels.flip(0)))
    return torch.lerp(other, own, share.flatten()).mean()


def make_model(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    block = [nn.Conv2d(3, width, 3, 2, 1), nn.GELU(), nn.Conv2d(width, width, 3, 2, 1), nn.GELU()]
    return nn.Sequential(*block, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, CLASSES))


def make_trainer(count: int = 4_000, epochs: int = 6, **settings: object) -> brim.Trainer:
    train = brim.Loader(Pictures(count, 1, shifts=True), batch_size=64)
    valid = brim.Loader(Pictures(count // 5, 2, shifts=False), batch_size=64, shuffle=False)
    return brim.Trainer(
        make_model(), train, valid, loss_fn=mixed_up, optimizer="AdamW", lr=3e-3, ema=0.99, epochs=epochs, **settings
    )


if __name__ == "__main__":
    print(make_trainer().fit().metrics)
