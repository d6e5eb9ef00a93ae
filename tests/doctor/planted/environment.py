# cause: data-made-in-the-loop
import math

import torch
from torch import nn


class Pendulum:
    def reset(self):
        self.th, self.v, self.t = 1.0, 0.0, 0
        return self._obs()

    def _obs(self):
        return [math.cos(self.th), math.sin(self.th), self.v]

    def step(self, u):
        for _ in range(400):
            self.v += (-9.8 * math.sin(self.th) + u) * 0.0005
            self.th += self.v * 0.0005
        self.t += 1
        return self._obs(), -(self.th**2), self.t >= 20


policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
log_std = nn.Parameter(torch.zeros(1))
opt = torch.optim.SGD([*policy.parameters(), log_std], lr=1e-3)
env = Pendulum()


def rollout():
    obs, states, actions, rewards, done = env.reset(), [], [], [], False
    while not done:
        s = torch.tensor(obs)
        with torch.no_grad():
            a = torch.normal(policy(s), log_std.exp())
        obs, r, done = env.step(a.item())
        states.append(s)
        actions.append(a)
        rewards.append(r)
    return torch.stack(states), torch.stack(actions), torch.tensor(rewards)


for _episode in range(100000):
    states, actions, rewards = rollout()
    returns = rewards.flip(0).cumsum(0).flip(0)
    dist = torch.distributions.Normal(policy(states), log_std.exp())
    loss = -(dist.log_prob(actions).squeeze(1) * (returns - returns.mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
