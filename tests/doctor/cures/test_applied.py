import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from brim.doctor.cures.applied import apply_cures
from brim.doctor.order import Cures

pytestmark = pytest.mark.usefixtures("undone")


def test_threads_stay_as_they_are_set():
    apply_cures(Cures(threads=1))
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 1


def test_no_cures_change_nothing():
    apply_cures(Cures())
    loader = DataLoader(list(range(4)), batch_size=2)
    assert (loader.num_workers, [batch.tolist() for batch in loader]) == (0, [[0, 1], [2, 3]])


def epochs(**settings):
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(20).reshape(10, 2), torch.arange(10.0))
    loader = DataLoader(Subset(data, range(1, 10)), batch_size=4, shuffle=True, **settings)
    return [[[column.tolist() for column in batch] for batch in loader] for _ in range(3)], loader


@pytest.mark.parametrize(
    "cures",
    [
        Cures(batched_access=True),
        Cures(num_workers=2, persistent_workers=True),
        Cures(num_workers=1, prefetch_factor=4),
        Cures(num_workers=2, persistent_workers=True, batched_access=True),
        # On a machine without a GPU, where nothing is copied to one, these change nothing either.
        Cures(device_prefetch=True),
        Cures(num_workers=2, persistent_workers=True, device_prefetch=True),
        Cures(resident_data=True, batched_access=True, num_workers=0),
    ],
    ids=lambda cures: cures.in_words,
)
def test_batches_are_the_same_in_every_epoch(cures):
    before, _ = epochs()
    apply_cures(cures)
    after, loader = epochs()
    assert after == before and loader.num_workers == (cures.num_workers or 0)


def test_workers_are_taken_away():
    settings = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3,
                "multiprocessing_context": "fork", "timeout": 60}  # fmt: skip
    before, _ = epochs(**settings)
    apply_cures(Cures(num_workers=0))
    after, loader = epochs(**settings)
    assert loader.num_workers == 0 and after[0] == before[0]


def test_workers_that_stay_draw_what_new_ones_would():
    before, _ = epochs(num_workers=2)
    apply_cures(Cures(persistent_workers=True))
    after, loader = epochs(num_workers=2)
    assert loader.persistent_workers and after == before


def test_a_stream_keeps_its_settings():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    apply_cures(Cures(num_workers=2))
    assert DataLoader(Stream()).num_workers == 0


def test_positional_settings_are_changed_too():
    apply_cures(Cures(num_workers=0))
    assert DataLoader(list(range(4)), 2, False, None, None, 3).num_workers == 0


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # there may be no GPU
def test_batches_are_pinned():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    apply_cures(Cures(pinned_copies=True))
    positional = DataLoader(list(range(4)), 2, False, None, None, 0, None, False)
    assert positional.pin_memory and DataLoader(Stream()).pin_memory and DataLoader([1], pin_memory=False).pin_memory
    assert [batch.tolist() for batch in positional] == [[0, 1], [2, 3]]


def test_batches_that_are_to_lie_on_a_device_are_not_pinned():
    apply_cures(Cures(resident_data=True, pinned_copies=True, num_workers=0))
    resident = DataLoader(list(range(4)), pin_memory=True, num_workers=2)
    assert not resident.pin_memory and resident.num_workers == 0


def test_other_data_sets_and_collations_are_fetched_as_they_were():
    apply_cures(Cures(batched_access=True))
    data = TensorDataset(torch.arange(4))
    doubled = DataLoader(data, batch_size=2, collate_fn=lambda samples: [2 * default_collate(samples)[0]])
    assert [batch[0].tolist() for batch in doubled] == [[0, 2], [4, 6]]
    assert [batch.tolist() for batch in DataLoader([1, 2, 3], batch_size=2)] == [[1, 2], [3]]
