# cause: data-made-in-the-loop
import numpy as np
import torch
from torch import nn


class Model:
    def __init__(self):
        self.netG = nn.Conv2d(3, 3, 3, padding=1)
        self.optimizer_G = torch.optim.SGD(self.netG.parameters(), lr=0.01)

    def set_input(self, input):
        images = []
        for a in input["A"]:
            a = np.flip(a, axis=np.random.randint(1, 3))
            a = a + np.random.normal(0, 0.05, a.shape)
            images.append(torch.from_numpy(np.ascontiguousarray(a)).float())
        self.real_A = torch.stack(images)

    def forward(self):
        self.fake_B = self.netG(self.real_A)

    def backward_G(self):
        self.loss_G = (self.fake_B - self.real_A).abs().mean()
        self.loss_G.backward()

    def optimize_parameters(self):
        self.forward()
        self.optimizer_G.zero_grad()
        self.backward_G()
        self.optimizer_G.step()


dataset = [{"A": np.random.rand(24, 3, 48, 48)} for _ in range(20)]
model = Model()
for _epoch in range(100_000):
    for data in dataset:
        model.set_input(data)
        model.optimize_parameters()
