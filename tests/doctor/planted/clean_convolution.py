# cause: none
import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, index):
        return torch.full((3, 32, 32), index / 2000), index % 10


def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    running = 0.0
    for _epoch in range(100):
        for step, (images, labels) in enumerate(DataLoader(Pictures(), batch_size=32, shuffle=True, pin_memory=True)):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
            if step % 50 == 0:
                print(running)


if __name__ == "__main__":
    main()
