"""A regression from a DataFrame (pip install pandas): python examples/tabular.py

Prices of flats, made up: a column of numbers to learn from the others, one of which is a name.
"""

import numpy as np
import pandas as pd
import torch
from torch import nn

import brim

FEATURES = ["area", "rooms", "age", "distance"]


def make_flats(count: int) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    flats = pd.DataFrame(
        {
            "area": draw.uniform(20, 160, count),
            "rooms": draw.integers(1, 7, count),
            "age": draw.exponential(30, count),
            "distance": draw.gamma(2.0, 3.0, count),
            "street": draw.choice(["Main Street", "High Street"], count),
        }
    )
    price = 3.2 * flats["area"] + 12 * flats["rooms"] - 0.8 * flats["age"] - 9 * np.sqrt(flats["distance"])
    return flats.assign(price=price * (1 + 0.05 * draw.standard_normal(count)))


def standardised(flats: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Inputs and target with mean 0 and deviation 1, as float32: torch computes no float64 with float32 weights."""
    numbers = flats[[*FEATURES, "price"]]
    numbers = ((numbers - numbers.mean()) / numbers.std()).astype("float32")
    return numbers[FEATURES], numbers["price"]


class Prices(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(len(FEATURES), width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).squeeze(1)


def make_trainer(count: int = 4_000, epochs: int = 10, **settings: object) -> brim.Trainer:
    torch.manual_seed(0)
    x, y = standardised(make_flats(count))
    split = count * 4 // 5
    train = brim.Loader((x[:split], y[:split]), batch_size=64)
    return brim.Trainer(
        Prices(), train, (x[split:], y[split:]), loss_fn=nn.MSELoss(), optimizer="AdamW", lr=3e-3, epochs=epochs,
        **settings,
    )  # fmt: skip


if __name__ == "__main__":
    print(make_trainer().fit().metrics)
