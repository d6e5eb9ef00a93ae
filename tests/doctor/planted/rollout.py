# cause: data-made-in-the-loop
import numpy as np
import torch
from torch import nn


class GridWorld:
    def __init__(self, n=24):
        self.n = n

    def reset(self):
        self.pos = np.array([0, 0])
        return self.render()

    def render(self):
        img = np.zeros((self.n, self.n), dtype=np.float32)
        for i in range(self.n):
            for j in range(0, self.n, 3):
                img[i, j] = 0.1 * ((i + j) % 3)
        img[tuple(self.pos)] = 1
        return img.ravel()

    def step(self, a):
        self.pos = np.clip(self.pos + [(0, 1), (1, 0), (0, -1), (-1, 0)][a], 0, self.n - 1)
        return self.render(), float(self.pos.sum()), False


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Sequential(nn.Linear(576, 64), nn.Tanh()), nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class PPO:
    def __init__(self):
        self.env, self.net = GridWorld(), ActorCritic()
        self.opt = torch.optim.Adam(self.net.parameters(), 3e-4)

    def collect(self, n=128):
        obs, buf = self.env.reset(), []
        with torch.no_grad():
            for _ in range(n):
                d, v = self.net(torch.from_numpy(obs))
                a = d.sample()
                nxt, r, _ = self.env.step(a.item())
                buf.append((obs, a.item(), d.log_prob(a).item(), r, v.item()))
                obs = nxt
        o, a, lp, r, v = zip(*buf, strict=False)
        return tuple(
            torch.tensor(np.array(z), dtype=t)
            for z, t in (
                (o, torch.float32),
                (a, torch.long),
                (lp, torch.float32),
                (r, torch.float32),
                (v, torch.float32),
            )
        )

    def update(self, batch, epochs=4, mb=32):
        o, a, lp, r, v = batch
        adv = r - v
        for _ in range(epochs):
            for i in torch.randperm(len(o)).split(mb):
                d, val = self.net(o[i])
                ratio = (d.log_prob(a[i]) - lp[i]).exp()
                loss = (
                    -torch.min(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean() + 0.5 * (val - r[i]).pow(2).mean()
                )
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.opt.step()

    def learn(self, iterations):
        for _it in range(iterations):
            self.update(self.collect())


PPO().learn(100000)
