# cause: anomaly-detection
import torch
from torch import nn


class T:
    def __init__(self, model):
        self.model, self.opt = model, torch.optim.Adam(model.parameters(), 1e-3, fused=True)

    def step(self, x):
        self.opt.zero_grad()
        with torch.autograd.detect_anomaly(check_nan=True):
            loss = (self.model(x) - x).pow(2).mean()
            loss.backward()
        self.opt.step()


t = T(nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]))
for _i in range(100000):
    t.step(torch.randn(128, 256))
