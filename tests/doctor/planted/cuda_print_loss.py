# cause: sync-in-the-loop
import torch
from tqdm import tqdm


class Trainer:
    def __init__(self, width):
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8))).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.running = 0.0

    def step(self, x):
        self.optimizer.zero_grad()
        hidden = x
        for layer in self.model:
            hidden = layer(hidden)
            if torch.isnan(hidden).any():
                raise RuntimeError("not a number")
        loss = hidden.pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.running = 0.9 * self.running + 0.1 * loss.item()
        return self.running

    def fit(self, steps):
        x = torch.randn(1024, 512, device="cuda")
        for _ in (bar := tqdm(range(steps), mininterval=5)):
            self.step(x)
            bar.set_description("training")


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    Trainer(512).fit(1_000_000)
