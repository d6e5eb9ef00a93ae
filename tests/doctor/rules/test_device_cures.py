import pytest
from helpers.observations import loader, observed

from brim.doctor.observation import TensorCalls
from brim.doctor.order import Cures
from brim.doctor.rules.device_cures import copy_cures, resident_cures

PINNED, AHEAD = Cures(pinned_copies=True), Cures(device_prefetch=True)
RESIDENT = Cures(resident_data=True, batched_access=True, num_workers=0)
SIZE = 10_000 * 400  # bytes of the data set


def seen(device="cuda", free=100 * SIZE, pinned=False, non_blocking=False, **changed):
    call = TensorCalls("to", "train.py:9", "x.to(0)", "to device", 1.0, 0.001, 1.0, pinned, non_blocking)
    host = {"device": device, "memory_free": free}
    return observed(host=host, loaders=(loader(**changed),), calls=(call,))


def test_copies_are_pinned_and_then_made_ahead():
    assert copy_cures(seen()) == (PINNED, AHEAD) == copy_cures(seen(pinned=True))
    assert copy_cures(seen(pinned=True, non_blocking=True)) == (AHEAD,)


@pytest.mark.parametrize("gives_columns", [{"columns": True}, {"batched_seconds": 1e-4}])
def test_a_data_set_of_columns_that_fits_well_is_held_on_the_gpu_first(gives_columns):
    assert resident_cures(seen(**gives_columns)) == (RESIDENT,)
    assert copy_cures(seen(**gives_columns)) == (RESIDENT, PINNED, AHEAD)
    assert resident_cures(seen(free=4 * SIZE, **gives_columns)) == (RESIDENT,)
    assert resident_cures(seen(free=4 * SIZE - 4, **gives_columns)) == ()


@pytest.mark.parametrize("other", [{}, {"stream": True}, {"default_collate": False}, {"length": None}, {"samples": 0}])
def test_other_data_sets_are_not(other):
    columns = {"columns": True} if other else {}
    assert resident_cures(seen(**columns, **other)) == ()


def test_nothing_of_it_is_for_a_cpu_or_a_script_without_a_loader():
    assert copy_cures(seen(device="cpu", columns=True)) == resident_cures(seen(device="cpu", columns=True)) == ()
    assert copy_cures(observed(host={"device": "cuda", "memory_free": SIZE})) == ()
