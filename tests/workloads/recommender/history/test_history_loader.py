import pytest
import torch

from brim.errors import ConfigError, DataError
from brim.workloads.recommender import EmbeddedDataset, Interactions
from brim.workloads.recommender.history import HistoryLoader


@pytest.fixture(scope="module")
def train_data():
    return EmbeddedDataset(n_users=30, n_items=40).get_split_data("train")


def watched(data):
    matrix = torch.zeros(data.n_users, data.n_items, dtype=torch.bool)
    matrix[data.users, data.items] = True
    return matrix


def joined(batches):
    return [torch.cat(parts) for parts in zip(*batches, strict=True)]


def test_each_item_of_a_history_is_either_seen_or_hidden(train_data):
    seen, hidden = joined(HistoryLoader(train_data, batch_size=7, device="cpu").in_order())
    assert torch.equal(seen | hidden, watched(train_data))
    assert not (seen & hidden).any()


def test_about_the_share_that_was_asked_for_is_hidden(train_data):
    for share in (0.2, 0.7):
        _, hidden = joined(HistoryLoader(train_data, hidden=share, device="cpu").in_order())
        assert hidden.sum() / watched(train_data).sum() == pytest.approx(share, abs=0.1)


def test_every_epoch_hides_others_and_visits_everybody_once(train_data):
    loader = HistoryLoader(train_data, batch_size=7, device="cpu")
    first, second = (joined(loader.batches(3, epoch)) for epoch in (0, 1))
    for seen, hidden in (first, second):
        assert sorted((seen | hidden).sum(1).tolist()) == sorted(watched(train_data).sum(1).tolist())
    assert not torch.equal(first[1], second[1])


def test_an_epoch_can_be_started_from_any_batch_and_does_not_depend_on_batch_size(train_data):
    loader, wider = (HistoryLoader(train_data, batch_size=size, device="cpu") for size in (7, 11))
    whole = joined(loader.batches(3, 5))
    rest = joined(loader.batches(3, 5, start=14))
    for part, expected, others in zip(rest, whole, joined(wider.batches(3, 5)), strict=True):
        assert torch.equal(part, expected[14:])
        assert torch.equal(expected, others)


def test_somebody_without_a_history_is_left_out():
    data = Interactions(torch.tensor([0, 2]), torch.tensor([1, 1]), n_users=3, n_items=2)
    loader = HistoryLoader(data, device="cpu")
    assert loader.samples == 2
    assert len(next(iter(loader)).seen) == 2


def test_what_cannot_be_is_refused(train_data):
    with pytest.raises(ConfigError, match="hidden=1"):
        HistoryLoader(train_data, hidden=1, device="cpu")
    with pytest.raises(ConfigError, match="batch_size=0"):
        HistoryLoader(train_data, batch_size=0, device="cpu")
    with pytest.raises(DataError, match="no interactions"):
        HistoryLoader(Interactions(torch.tensor([]).long(), torch.tensor([]).long(), 1, 1), device="cpu")


@pytest.mark.gpu
def test_the_gpu_makes_the_same_batches(train_data):
    here, there = (joined(HistoryLoader(train_data, device=device).batches(3, 5)) for device in ("cpu", "cuda"))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))
