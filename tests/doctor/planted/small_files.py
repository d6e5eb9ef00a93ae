# cause: small-files
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, folder, count):
        self.paths = [folder / f"{number}.npy" for number in range(count)]
        for path in self.paths:
            np.save(path, np.ones(32, dtype=np.float32))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.from_numpy(np.load(self.paths[index]))


with tempfile.TemporaryDirectory() as folder:
    loader = DataLoader(Files(Path(folder), 2000), batch_size=128, shuffle=True)
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _epoch in range(1000):
        for x in loader:
            optimizer.zero_grad()
            loss = (model(x) - x).pow(2).mean()
            loss.backward()
            optimizer.step()
