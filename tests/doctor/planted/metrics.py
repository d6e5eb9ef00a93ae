# cause: host-work-in-the-loop
import torch


def accuracy(logits, labels):
    return sum(int(row.argmax()) == int(label) for row, label in zip(logits, labels, strict=True)) / len(labels)


model = torch.nn.Linear(32, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs, targets = torch.randn(512, 32), torch.randint(0, 10, (512,))
history = []
for _step in range(100_000):
    optimizer.zero_grad()
    logits = model(inputs)
    loss = torch.nn.functional.cross_entropy(logits, targets)
    loss.backward()
    optimizer.step()
    right = accuracy(logits, targets)
    history.append(right)
