# cause: no-workers
import tempfile
from pathlib import Path

import lightning
import numpy as np
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.jpg"))

    def __len__(self):
        return 50 * len(self.files)

    def __getitem__(self, index):
        image = Image.open(self.files[index % len(self.files)]).convert("RGB")
        image = image.resize((96, 96), Image.Resampling.LANCZOS).filter(ImageFilter.GaussianBlur(2))
        return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1), index % 10


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
            torch.nn.Linear(8, 10),
        )  # fmt: skip

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        noise = np.random.default_rng(0)
        for number in range(40):
            pixels = noise.integers(0, 255, (480, 640, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(f"{folder}/{number}.jpg")
        loader = DataLoader(Photos(folder), batch_size=16, shuffle=True, num_workers=0)
        trainer = lightning.Trainer(
            max_epochs=100, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
        )
        trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()
