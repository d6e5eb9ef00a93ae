import pytest

from brim.doctor.watching.meters import Meters, whole_epochs, window


def marks(epochs, seconds=1.0, data=0.5):
    return [Meters(now=place * seconds, data=place * data, epochs=epoch) for place, epoch in enumerate(epochs)]


def test_a_window_is_the_difference_of_its_ends():
    found = window(marks([0, 0, 0]))
    assert (found.steps, found.seconds, found.data) == (2, 2.0, 1.0)
    assert found.step_seconds == (1.0, 1.0, 1.0) and found.step == 1.0
    assert window(marks([0])) is None


def test_it_is_cut_to_whole_epochs_where_several_are_in_it():
    cut = whole_epochs(marks([0, 1, 1, 2, 2, 3, 3, 3]))
    assert [mark.epochs for mark in cut] == [1, 1, 2, 2, 3]
    assert len(whole_epochs(marks([0, 0, 1, 1]))) == 4


def test_percentiles_show_uneven_steps():
    uneven = [Meters(now=moment) for moment in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 30)]
    low, middle, high = window(uneven).step_seconds
    assert low == middle == 1 and high == pytest.approx(12, abs=3)
