"""What pages of the docs take for granted: names that their code blocks use without making them."""

# For every page: a small model, data in the forms that pages speak of, and the usual imports.
ALWAYS = """
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import brim

torch.manual_seed(0)


class Small(nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.head = nn.Linear(4, outputs)

    def forward(self, x):
        return self.head(x)

    def calculate_loss(self, batch):
        return F.mse_loss(self(batch[0]), batch[1])


model = Small()
features = torch.randn(64, 4)
targets = features.sum(1, keepdim=True)
data = train_data = eval_data = other_data = (features, targets)
dataset = TensorDataset(features, targets)
loader = brim.Loader(data, batch_size=16)
batch = data
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
trainer = brim.Trainer(model, data, eval_data, loss_fn=loss_fn, device="cpu", run_dir="runs/mine")
"""

# A module and its data as people of Lightning have them.
LIT = """
import lightning as L


class LitClassifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def training_step(self, batch, index):
        return F.mse_loss(self.head(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Rows(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(dataset, batch_size=16)


datamodule, module = Rows(), LitClassifier()
"""

# For one page more than that.
BESIDE = {
    "cache.md": "transform = lambda sample: (sample[0] * 2, sample[1])",
    "from-other-trainers.md": LIT,
    "lightning.md": LIT,
    "loggers.md": """
class Mine:
    def write(self, step, epoch, numbers):
        pass

    def close(self):
        pass
""",
    "losses-across-the-batch.md": """
model = nn.Module()
model.image, model.text, model.scale = nn.Linear(4, 8), nn.Linear(4, 8), nn.Parameter(torch.zeros(()))
data = (features, features)
""",
    "memory.md": "model.head, hidden, targets = nn.Linear(4, 10), features, torch.randint(10, (64,))",
    "metrics.md": """
model = Small(outputs=8)
train_data = eval_data = other_data = (features, torch.randint(8, (64,)))
""",
    "notebooks.md": "X, y, X_val, y_val = features, targets, features, targets",
    "parts-of-a-batch.md": "weight = torch.ones(3)",
    "precision.md": "data = [(features, targets)]",
    "reliability.md": """
brim.Trainer(model, data, loss_fn=loss_fn, device="cpu", run_dir="runs/other").fit()
""",
    "shards.md": """
import io

from PIL import Image

picture = io.BytesIO()
Image.new("RGB", (8, 8)).save(picture, "JPEG")
dataset = [{"jpg": picture.getvalue(), "cls": index % 2} for index in range(20)]
augment = lambda picture: picture
""",
    "short-runs.md": """
brim.Trainer(
    model, data, eval_data, loss_fn=loss_fn, device="cpu", run_dir="runs/NAME", epochs=3, keep_best=2, lr=0.1
).fit()
""",
    "transformers.md": """
from helpers.small_bert import arguments, bert, samples

make_model, model, args = bert, bert(), arguments("out")
data = [{**sample, "labels": torch.tensor(sample["labels"])} for sample in samples(64)]
loader = eval_loader = DataLoader(data, batch_size=16)
""",
}
