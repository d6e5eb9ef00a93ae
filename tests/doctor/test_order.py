import json
from dataclasses import asdict

from brim.doctor.order import Cures, Order, read_order


def test_it_travels_as_json():
    order = Order("train.py", ("--epochs", "3"), cures=Cures(num_workers=2, threads=1), observes=False)
    assert read_order(json.dumps(asdict(order))) == order


def test_cures_know_whether_there_are_any():
    assert Cures().are_none and not Cures(num_workers=0).are_none


def test_cures_of_copies_are_told_from_others():
    assert Cures(pinned_copies=True).are_of_copies and Cures(pinned_copies=True, device_prefetch=True).are_of_copies
    assert not Cures().are_of_copies and not Cures(device_prefetch=True, num_workers=2).are_of_copies


def test_what_a_cure_changes_is_told_in_words():
    words = Cures(resident_data=True, batched_access=True, num_workers=0, compile=True).in_words
    assert words == "num_workers=0, batched_access=True, resident_data=True, compile=True"
