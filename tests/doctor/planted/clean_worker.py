# cause: none
import torch
from torch.utils.data import DataLoader, Dataset


class Cheap(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        return torch.full((512,), float(index))


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(Cheap(), batch_size=128, num_workers=1, persistent_workers=True)
    for _epoch in range(1000):
        for x in loader:
            optimizer.zero_grad()
            loss = (model(x) - x).pow(2).mean()
            loss.backward()
            optimizer.step()
