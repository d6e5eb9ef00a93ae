# cause: workers-cost-more
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    data = TensorDataset(*(torch.randn(200_000, 4) for _ in range(12)))
    sampler = BatchSampler(RandomSampler(data), 256, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None, num_workers=1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _epoch in range(1000):
        for columns in loader:
            optimizer.zero_grad()
            loss = model(columns[0]).pow(2).mean()
            loss.backward()
            optimizer.step()
