"""Objects that blocks are handed, and change."""

from types import SimpleNamespace

import torch

from brim.memory.trace.handed_objects import held_by, repeated, tensors_in


def cache():
    layer = SimpleNamespace(keys=torch.ones(2), values=None)
    return SimpleNamespace(layers=[layer], seen={"tokens": 3})


def test_tensors_are_found_at_any_depth_and_once_for_a_ring():
    made = cache()
    made.itself = made
    assert [tensor.shape for tensor in tensors_in([made, 5, "word", torch.ones(7)])] == [(2,)]


def test_a_repetition_begins_as_the_first_did_and_leaves_what_the_first_left():
    made = cache()
    begun, keys = held_by([made]), made.layers[0].keys
    made.layers[0].keys = torch.zeros(5)
    made.layers.append(SimpleNamespace(keys=None))
    made.seen["tokens"] = 4
    now = made.layers[0].keys
    with repeated(begun, [made]):
        assert made.layers[0].keys is keys
        assert (len(made.layers), made.seen) == (1, {"tokens": 3})
        made.layers[0].keys = torch.zeros(9)
        made.layers.clear()
    assert made.layers[0].keys is now
    assert (len(made.layers), made.seen) == (2, {"tokens": 4})
