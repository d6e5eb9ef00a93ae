"""With the real Accelerate, on a CPU: the same batches, and the same moments at which it knows the last one."""

import sys

import pytest
import torch
from helpers.small_training import X, Y, net, sgd
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from brim.errors import ConfigError
from brim.integrations.accelerate import prefetch
from brim.integrations.accelerate.inner_loader import InnerLoader

pytest.importorskip("accelerate", reason="accelerate is not installed")


class Drawing(Dataset):
    """Draws from the generator that dropout draws from as well."""

    def __len__(self):
        return len(X)

    def __getitem__(self, place):
        return X[place] + 0.1 * torch.randn(4), Y[place]


def trained(accelerator, prepare, data=None, workers=0):
    """A loop as Accelerate's docs have it; returns losses, what was known of the last batch, and the weights."""
    accelerator = accelerator(gradient_accumulation_steps=3)
    torch.manual_seed(3)
    model = net()
    model, optimizer, loader = accelerator.prepare(
        model, sgd(model.parameters()), DataLoader(data or Drawing(), batch_size=6, shuffle=True, num_workers=workers)
    )
    loader = prepare(loader)
    seen = []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            seen.append((loss.item(), accelerator.sync_gradients, loader.end_of_dataloader))
    return seen, [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loop_trains_the_same_with_accumulation_and_a_shorter_last_batch(accelerator, workers):
    plain, weights = trained(accelerator, lambda loader: loader, workers=workers)
    ahead, same = trained(accelerator, prefetch, workers=workers)
    assert plain == ahead and len(plain) == 14
    assert all(torch.equal(one, other) for one, other in zip(weights, same, strict=True))
    assert [synced for _, synced, _ in plain[:7]] == [False, False, True, False, False, True, True]  # the short window


def test_for_all_else_it_is_the_loader_that_it_was(accelerator):
    loader = accelerator().prepare(DataLoader(TensorDataset(X, Y), batch_size=6))
    known = len(loader), loader.dataset, loader.batch_size, loader.batch_sampler
    assert prefetch(loader) is loader and prefetch(loader) is loader  # once
    assert type(loader.base_dataloader) is InnerLoader and type(loader.base_dataloader.inner) is DataLoader
    assert isinstance(loader, DataLoader) and isinstance(loader.base_dataloader, DataLoader)
    assert (len(loader), loader.dataset, loader.batch_size, loader.batch_sampler) == known


def test_an_error_of_the_data_comes_in_its_turn(accelerator):
    class Broken(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, place):
            if place == 6:
                raise RuntimeError("sample 6")
            return torch.tensor(place)

    def read(prepare):
        seen, loader = [], prepare(accelerator().prepare(DataLoader(Broken(), batch_size=2)))
        with pytest.raises(RuntimeError, match="sample 6"):
            seen.extend(iter(loader))
        return loader, seen

    (_, plain), (loader, ahead) = read(lambda loader: loader), read(prefetch)
    assert [batch.tolist() for batch in ahead] == [batch.tolist() for batch in plain]
    assert next(iter(loader)).tolist() == [0, 1]  # it can be read again


def test_a_clock_hears_of_every_batch_and_the_first_one_is_seen_once():
    class Clock(list):
        def asks_for_batch(self):
            self.append("asks")

        def got_batch(self):
            self.append("has")
            return 0.0

    clock, first = Clock(), []
    loader = InnerLoader([1, 2], clock=clock, on_first=first.append)
    assert list(loader) == [1, 2] and clock == ["asks", "has", "asks", "has", "asks"]
    assert list(loader) == [1, 2] and first == [1] and len(loader) == 2


def test_what_accelerate_has_not_prepared_is_refused_in_a_sentence(accelerator):
    with pytest.raises(
        ConfigError, match=r"this is a DataLoader; around a plain DataLoader use brim\.DevicePrefetcher"
    ):
        prefetch(DataLoader(TensorDataset(X), batch_size=2))
    stays = accelerator(device_placement=False).prepare(DataLoader(TensorDataset(X), batch_size=2))
    with pytest.raises(ConfigError, match="device_placement=False"):
        prefetch(stays)


def test_without_the_library_nothing_is_prepared_and_the_same_sentence_says_so(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "accelerate"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "accelerate", None)  # an import of it fails
    with pytest.raises((ConfigError, ImportError)) as refusal:  # an ImportError alone would skip this test
        prefetch(DataLoader([1]))
    assert "this is a DataLoader; around a plain DataLoader use brim.DevicePrefetcher" in str(refusal.value)


def test_one_that_the_first_process_dispatches_is_refused(accelerator):
    from accelerate.utils import DataLoaderConfiguration

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(X)

    configured = accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    with pytest.raises(ConfigError, match="DataLoaderDispatcher"):
        prefetch(configured.prepare(DataLoader(Stream(), batch_size=2)))
