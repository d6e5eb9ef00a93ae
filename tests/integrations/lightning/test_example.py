import importlib.util
from pathlib import Path

import torch
from helpers.lightning_training import train_both
from torch.utils.data import DataLoader

FILE = Path(__file__).parents[3] / "examples" / "lightning_module.py"


def test_the_example_ends_with_the_bits_of_lightning_and_learns(tmp_path):
    spec = importlib.util.spec_from_file_location("lightning_module", FILE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    def loaders():
        return tuple(
            DataLoader(one.dataset, one.batch_size, generator=torch.Generator()) for one in example.make_loaders(300)
        )

    both = train_both(example.Classifier, tmp_path, loaders, epochs=4)
    both.check()
    assert both.result.metrics["val_acc"] > 0.6
