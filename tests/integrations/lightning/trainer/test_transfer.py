from dataclasses import dataclass
from typing import NamedTuple

import lightning as L
import pytest
import torch
from helpers.lightning_training import Classifier, loaders, train_both
from torch.utils.data import DataLoader

import brim
from brim.integrations.lightning import DeviceLoader, TransfersBatches

META = torch.device("meta")


class Pair(NamedTuple):
    first: torch.Tensor
    name: str


@dataclass
class Sample:
    x: torch.Tensor
    more: dict


class Net(TransfersBatches, Classifier):
    pass


class Data(TransfersBatches, L.LightningDataModule):
    pass


@pytest.mark.parametrize("owner", [Net, Data])
def test_batches_of_any_nesting_are_moved(owner):
    batch = {"pair": Pair(torch.ones(1), "a"), "deep": [Sample(torch.ones(1), {"y": (torch.ones(1), 3)})]}
    moved = owner().transfer_batch_to_device(batch, META, 0)
    assert moved["pair"].first.device == META and moved["pair"].name == "a"
    assert moved["deep"][0].x.device == META and moved["deep"][0].more["y"][0].device == META


def test_a_module_with_the_mixin_trains_the_same_in_both_loops(tmp_path):
    train_both(Net, tmp_path).check()


def test_brims_feed_in_lightnings_loop_gives_the_batches_of_a_data_loader(tmp_path):
    def weights(data):
        torch.manual_seed(1)
        module = Classifier()
        trainer = L.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, data)
        return module.net[0].weight

    dataset = loaders()[0].dataset
    plain = weights(DataLoader(dataset, 8, generator=torch.Generator()))
    assert torch.equal(plain, weights(brim.Loader(dataset, 8, shuffle=False)))
    assert torch.equal(plain, weights(DeviceLoader(DataLoader(dataset, 8, generator=torch.Generator()), "cpu")))
    # A shuffled one draws from its generator for every iterator, also one that is asked for and never read.
    assert torch.equal(weights(loaders()[0]), weights(DeviceLoader(loaders()[0], "cpu")))


def test_a_stream_has_no_length_here_either():
    assert len(DeviceLoader([1, 2], "cpu")) == 2
    with pytest.raises(TypeError, match="has no length"):
        len(DeviceLoader(iter([]), "cpu"))


@pytest.mark.gpu
def test_batches_are_on_the_gpu_before_lightning_sees_them():
    loader = DeviceLoader(loaders()[1], "cuda")
    assert all(x.device.type == "cuda" for x, _ in loader)
