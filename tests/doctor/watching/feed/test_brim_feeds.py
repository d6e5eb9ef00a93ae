import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from brim.data import Loader
from brim.data.batches.prefetch import DevicePrefetcher
from brim.doctor.watching.feed.batch_costs import BatchCosts
from brim.doctor.watching.feed.brim_feeds import watch_brims_feeds
from brim.doctor.watching.feed.loader_hooks import LoaderHooks
from brim.doctor.watching.meters import Meters


@pytest.fixture
def hooks(unhooked, monkeypatch):
    monkeypatch.setattr(DevicePrefetcher, "__call__", DevicePrefetcher.__call__)
    made = LoaderHooks(Meters(), BatchCosts())
    made.install()
    watch_brims_feeds(made)
    return made


def test_what_a_trainer_takes_from_a_feed_is_waiting_for_data(hooks):
    prefetcher = DevicePrefetcher("cpu")
    loader = Loader(torch.arange(8.0), batch_size=2, shuffle=False)
    for epoch in range(2):
        batches = [batch.tolist() for batch in prefetcher(loader.batches(0, epoch)) if hooks.on_backward() is None]
        assert batches == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert hooks.meters.data > 0 and (hooks.meters.batches, hooks.meters.samples) == (8, 16)
    assert hooks.meters.epochs == 1  # the first began before anybody knew what the feed is for
    assert hooks.train is not None and hooks.seen() == ()


def test_another_prefetcher_is_for_evaluation_and_batches_can_come_again(hooks):
    train, valid = DevicePrefetcher("cpu"), DevicePrefetcher("cpu")
    data = [torch.ones(2), torch.zeros(2)]
    for _ in train(iter(data)):
        hooks.on_backward()
    for _ in valid(iter(data)):
        assert hooks.in_evaluation
    waited, hooks.replaying = hooks.meters.data, True
    again = train(iter(data))
    assert [next(again).sum().item() for _ in range(6)] == [0, 2, 0, 2, 0, 2]
    assert hooks.meters.data == waited and not hooks.in_evaluation


def test_batches_of_a_dataloader_are_its_own(hooks):
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2)
    for _ in DevicePrefetcher("cpu")(iter(loader)):
        hooks.on_backward()
    assert hooks.train is hooks.watched(loader) and hooks.meters.batches == 4
    assert [seen.dataset for seen in hooks.seen()] == ["TensorDataset"]
