"""A model of your own in twenty lines: python examples/your_model.py"""

import torch
from torch import nn

import brim

torch.manual_seed(0)
x = torch.randn(2_000, 16)
y = (x @ torch.randn(16, 1) / 4).sin()
train, valid = (x[:1_600], y[:1_600]), (x[1_600:], y[1_600:])

model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))
trainer = brim.Trainer(
    model,
    brim.Loader(train, batch_size=64),
    eval_data=valid,
    loss_fn=nn.MSELoss(),
    epochs=20,
    patience=3,
    scheduler="cosine",
)
result = trainer.fit()
print(f"{result.metrics['loss']:.4f} after {result.steps} steps; run folder: {result.run}")
