# cause: slow-collate
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader

rng = np.random.default_rng(0)
frame = pd.DataFrame(
    {
        "store": rng.integers(0, 50, 5000),
        "day": rng.integers(0, 7, 5000),
        "price": rng.random(5000),
        "qty": rng.random(5000),
    }
)
rows = frame.to_dict("records")


def collate(batch):
    df = pd.DataFrame(batch)
    df["price_z"] = df.groupby("day")["price"].transform(lambda s: (s - s.mean()) / (s.std() + 1e-6)).fillna(0)
    one_hot = pd.get_dummies(df["day"]).reindex(columns=range(7), fill_value=0)
    x = np.hstack([df[["price", "price_z"]].to_numpy(), one_hot.to_numpy()]).astype("float32")
    return torch.from_numpy(x), torch.tensor(df["qty"].to_numpy(dtype="float32"))


def main():
    loader = DataLoader(rows, batch_size=128, shuffle=True, collate_fn=collate)
    model = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(1000):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()


main()
