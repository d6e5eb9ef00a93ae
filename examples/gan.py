"""Two networks in turns, each with a step of its own: python examples/gan.py

A generator learns eight points on a circle. Each ``brim.Step`` is guarded against running out of memory, and on a GPU
captured; what it computes is what the loop with ``backward`` and ``step`` computes.
"""

import math

import torch
from torch import Tensor, nn

import brim

NOISE = 8
judge_loss = nn.BCEWithLogitsLoss()


def real_points(count: int, generator: torch.Generator) -> Tensor:
    angle = torch.randint(8, (count,), generator=generator) * (2 * math.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2, generator=generator)


def make_networks() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(NOISE, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    judge = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    return maker, judge


def train(steps: int = 1_000, batch: int = 128, device: str = "cpu") -> tuple[nn.Module, nn.Module]:
    maker, judge = (network.to(device) for network in make_networks())
    generator = torch.Generator().manual_seed(0)

    def judged(judge: nn.Module, points: tuple[Tensor, Tensor]) -> Tensor:
        real, made = points
        right, wrong = judge(real), judge(made)
        return judge_loss(right, torch.ones_like(right)) + judge_loss(wrong, torch.zeros_like(wrong))

    def fooled(maker: nn.Module, noise: Tensor) -> Tensor:
        said = judge(maker(noise))
        return judge_loss(said, torch.ones_like(said))

    judge_step = brim.Step(judge, torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.9)), judged)
    maker_step = brim.Step(maker, torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.9)), fooled)
    for _ in range(steps):
        real, noise = real_points(batch, generator), torch.randn(batch, NOISE, generator=generator)
        with torch.no_grad():
            made = maker(noise.to(device))
        judge_step((real, made))
        maker_step(noise)
    return maker, judge


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = train(device=device)[0](torch.randn(1_000, NOISE, device=device)).detach()
    radius = made.norm(dim=1)
    near = (radius - 1).abs().lt(0.2).float().mean()
    print(f"radius {radius.mean():.2f} (the circle's is 1), {near:.0%} of the points near it")
