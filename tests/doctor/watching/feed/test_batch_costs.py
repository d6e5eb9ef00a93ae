from torch.utils.data import DataLoader

from brim.doctor.watching.feed.batch_costs import LOADERS, BatchCosts, LoaderCost


class Opens:
    def __init__(self, costs):
        self.costs = costs

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.costs.count_open()
        return index


def test_files_and_batches_are_counted_here_and_in_workers(unhooked):
    costs = BatchCosts()
    costs.install()
    for workers in (0, 2):
        data = Opens(costs)
        place = costs.place(data)
        list(DataLoader(data, batch_size=2, num_workers=workers))
        found = costs.total(place)
        assert (found.batches, found.files) == (2, 4)
        assert found.seconds >= found.collate > 0


def test_places_beyond_the_last_are_not_counted():
    assert BatchCosts().total(LOADERS) == LoaderCost()
    assert LoaderCost(3, 2.0).since(LoaderCost(1, 0.5)) == LoaderCost(2, 1.5)
