# cause: small-files
import os
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    """One .npz for each recording, opened when it is asked for."""

    def __init__(self, folder):
        self.folder = folder
        self.names = sorted(os.listdir(folder))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        with np.load(os.path.join(self.folder, self.names[i])) as archive:
            return {"signal": torch.from_numpy(archive["signal"]), "label": int(archive["label"])}


class Batches(DataLoader):
    def __init__(self, folder, size):
        super().__init__(Recordings(folder), batch_size=size, shuffle=True, drop_last=True)

    def __iter__(self):
        for batch in super().__iter__():
            yield batch["signal"], batch["label"]


def run():
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    for number in range(500):
        np.savez(f"{folder}/{number}.npz", signal=np.random.randn(128).astype(np.float32), label=number % 3)
    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = Batches(folder, 50)
    for _epoch in range(10_000):
        for signal, label in batches:
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(signal), label).backward()
            optimizer.step()


run()
