# cause: none
import torch

torch.set_num_threads(1)
series = torch.randn(2000, 30, 16)
model, head = torch.nn.LSTM(16, 128, batch_first=True), torch.nn.Linear(128, 1)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
for _epoch in range(1000):
    order = torch.randperm(len(series))
    for start in range(0, len(series), 128):
        x = series[order[start : start + 128]]
        optimizer.zero_grad()
        output, _ = model(x)
        loss = (head(output[:, -1]) - x[:, -1, :1]).pow(2).mean()
        loss.backward()
        optimizer.step()
