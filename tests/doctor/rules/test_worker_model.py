import pytest
from helpers.observations import loader, observed

from brim.doctor.rules.worker_model import Feeding, feeding


def test_what_waits_scales_with_workers_and_what_computes_with_cores():
    waits = Feeding(make=0.1, make_cpu=0.001, rest=0.01, cores=2, tensors=1)
    computes = Feeding(make=0.1, make_cpu=0.1, rest=0.01, cores=2, tensors=1)
    assert waits.step(8) == pytest.approx(0.0125) and computes.step(8) > 0.05
    assert waits.best() == 10 and computes.best() == 2


def test_batches_that_cost_less_than_handing_them_over_need_no_workers():
    assert Feeding(make=0.0002, make_cpu=0.0002, rest=0.01, cores=8, tensors=3).best() == 0


def test_a_step_without_workers_is_told_by_the_cpu_that_they_use_unless_they_wait():
    assert Feeding(make=0.02, make_cpu=0.015, rest=0.01, cores=2, tensors=1).alone == pytest.approx(0.025)
    assert Feeding(make=0.02, make_cpu=0.001, rest=0.01, cores=2, tensors=1).alone == pytest.approx(0.03)


def test_the_numbers_are_a_steps_not_a_batches():
    found = feeding(observed(step=0.01, data=0.004, window={"batches": 200}, loaders=(loader(),)))
    assert found.make == pytest.approx(2e-3) and found.rest == pytest.approx(0.006)


def test_without_a_loader_or_times_of_its_workers_there_is_nothing_to_tell():
    assert feeding(observed()) is None
    assert feeding(observed(loaders=(loader(make_seconds=None),))) is None
