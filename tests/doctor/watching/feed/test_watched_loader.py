import torch
from torch.utils.data import DataLoader, TensorDataset

from brim.doctor.watching.feed.batch_costs import LoaderCost
from brim.doctor.watching.feed.watched_loader import WatchedLoader, settings_of


def test_settings_and_counts_of_a_loader_are_told_together():
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4, pin_memory=False)
    watched = WatchedLoader(settings_of(loader, "train.py:3"), place=0)
    watched.begin_window(LoaderCost(10, 1.0, 0.5, 0.1, 0))
    assert watched.take([torch.ones(4, 2)]) == 4
    seen = watched.seen(LoaderCost(12, 1.4, 0.7, 0.2, 6))
    assert seen.shapes == 1
    assert watched.take([torch.ones(3, 2)]) == 3 and watched.take([torch.ones(4, 5)]) == 4
    assert watched.seen(LoaderCost()).shapes == 2  # a shorter last batch is none of its own
    assert (seen.line, seen.batch_size, seen.columns, seen.batches, seen.samples) == ("train.py:3", 4, True, 1, 4)
    assert (round(seen.make_seconds, 6), seen.files_opened, seen.batch_bytes) == (0.2, 3.0, 32)


def test_few_batches_are_kept_and_old_ones_make_room():
    watched = WatchedLoader(None, place=-1)
    for number in range(40):
        watched.take(torch.tensor([number]))
    assert len(watched.kept) == 4 and watched.kept[-1].item() == 39
