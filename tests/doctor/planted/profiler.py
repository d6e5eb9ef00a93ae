# cause: profiler-in-the-loop
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

net = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x, y = torch.randn(64, 32), torch.randn(64, 1)
with profile(
    activities=[ProfilerActivity.CPU],
    record_shapes=True,
    with_stack=True,
    schedule=schedule(wait=1, warmup=1, active=8),
) as prof:
    for _i in range(1000000):
        opt.zero_grad()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        opt.step()
        prof.step()
