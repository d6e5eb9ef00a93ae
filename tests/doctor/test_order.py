import json

from brim.doctor.order import Cures, Order, read_order


def test_it_travels_as_json():
    order = Order("train.py", ("--epochs", "3"), cures=Cures(num_workers=2, threads=1), observes=False)
    assert read_order(json.dumps(order.as_json())) == order


def test_cures_know_whether_there_are_any():
    assert Cures().are_none and not Cures(num_workers=0).are_none
