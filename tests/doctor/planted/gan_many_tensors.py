# cause: optimizer-not-fused
import torch
from torch import nn, optim


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(40))
        self.shift = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(40))

    def forward(self, x):
        return x * torch.stack(list(self.scale)).mean(0) + torch.stack(list(self.shift)).mean(0)


def weights(width):
    return nn.Sequential(nn.Linear(width, width), *(Residual(width) for _ in range(4)))


class GAN:
    def __init__(self):
        self.G, self.D = weights(16), weights(16)
        self.opt_g = optim.Adam(self.G.parameters(), lr=2e-4, betas=(0.5, 0.999), foreach=False)
        self.opt_d = optim.Adam(self.D.parameters(), lr=2e-4, betas=(0.5, 0.999), foreach=False)

    def train(self, steps):
        torch.set_num_threads(1)
        for step in range(steps):
            real, z = torch.randn(32, 16) + 2, torch.randn(32, 16)
            self.opt_d.zero_grad()
            fake = self.G(z)
            d_loss = nn.functional.softplus(-self.D(real)).mean() + nn.functional.softplus(self.D(fake.detach())).mean()
            d_loss.backward()
            self.opt_d.step()
            self.opt_g.zero_grad()
            g_loss = nn.functional.softplus(-self.D(fake)).mean()
            g_loss.backward()
            self.opt_g.step()
            if step % 100 == 0:
                print(step, d_loss.item(), g_loss.item())


if __name__ == "__main__":
    GAN().train(1_000_000)
