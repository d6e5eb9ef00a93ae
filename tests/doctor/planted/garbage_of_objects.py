# cause: garbage-collection
import random

import torch


class Node:
    def __init__(self, number):
        self.number, self.edges = number, []


torch.set_num_threads(1)
nodes = [Node(number) for number in range(400_000)]
for node in nodes:
    node.edges.append(random.choice(nodes))

model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(32, 32)
walks = []
for step in range(1_000_000):
    optimizer.zero_grad()
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    walks.append([[step, part] for part in range(2000)])
    if len(walks) > 100:
        walks = []
