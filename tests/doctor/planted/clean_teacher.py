# cause: none
import torch
from torch import nn


class Distiller:
    def __init__(self, teacher, student, T=4.0):
        self.teacher, self.student, self.T = teacher.eval(), student, T
        self.optimizer = torch.optim.SGD(student.parameters(), lr=0.01)

    def step(self, x, y):
        with torch.no_grad():
            soft = self.teacher(x)
        logits = self.student(x)
        kd = nn.functional.kl_div((logits / self.T).log_softmax(1), (soft / self.T).softmax(1), reduction="batchmean")
        loss = kd + nn.functional.cross_entropy(logits, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def mlp(width):
    return nn.Sequential(nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 20))


distiller = Distiller(mlp(1400), mlp(700))
xs, ys = torch.randn(30, 128, 128), torch.randint(0, 20, (30, 128))
running = 0.0
for step in range(1_000_000):
    loss = distiller.step(xs[step % 30], ys[step % 30])
    running = 0.99 * running + 0.01 * loss.item()
