import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from brim.data.loader import Loader
from brim.data.presets import loader_preset
from brim.errors import ConfigError


@pytest.mark.parametrize("card", ["8GB", "16 GB", "24GB+", "24gib"])
def test_a_preset_fits_brims_loader_and_torchs(card):
    settings = loader_preset(card)
    assert settings["num_workers"] in (2, 4, 8)
    Loader(torch.arange(4), 2, **settings)
    DataLoader(TensorDataset(torch.arange(4)), 2, **settings)


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(ConfigError, match="8GB, 16GB, 24GB"):
        loader_preset("12GB")
