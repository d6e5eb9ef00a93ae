# cause: none
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(4096, 512)), batch_size=128, shuffle=True, drop_last=True)
model = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
for _epoch in range(1000):
    for number, (x,) in enumerate(loader):
        loss = (model(x) - x).pow(2).mean() / 4
        loss.backward()
        if number % 4 == 3:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
