# cause: no-workers
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(3, 64, 64)


torch.set_float32_matmul_precision("high")
model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
for images in DataLoader(Images(), batch_size=32, pin_memory=True):
    optimizer.zero_grad()
    loss = model(images.to("cuda", non_blocking=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
