import pytest
import torch
from torch import nn

from brim.data import slice_batch
from brim.engine.step.resized import resized
from brim.errors import DataError

# Batches of another size


@pytest.mark.parametrize("wanted", [1, 3, 4, 9])
def test_batches_of_any_nesting_are_resized(wanted):
    ids = torch.arange(4)
    example = {"x": torch.randn(4, 2, 5), "ids": (ids, [ids.bool()]), "half": torch.zeros(4, dtype=torch.float16)}
    made = resized(example, 4, wanted)
    assert type(made["ids"]) is tuple
    assert made["x"].shape == (wanted, 2, 5)
    assert (made["half"].shape, made["half"].dtype) == ((wanted,), torch.float16)
    assert made["ids"][0].tolist() == [i % 4 for i in range(wanted)]  # whole numbers are indices: theirs must be real
    assert made["ids"][1][0].tolist() == [bool(i % 4) for i in range(wanted)]
    assert example["ids"][0] is ids


def test_what_is_not_as_long_as_the_batch_stays():
    scale, table = torch.tensor(2.0), torch.arange(6)
    made = resized({"x": torch.ones(4, 2), "scale": scale, "table": table, "name": "a", "none": None, "k": 3}, 4, 2)
    assert made["x"].shape == (2, 2)
    assert torch.equal(made["scale"], scale)
    assert torch.equal(made["table"], table)
    assert (made["name"], made["none"], made["k"]) == ("a", None, 3)


def test_texts_are_cut_as_a_slice_of_the_batch_cuts_them():
    example = {"x": torch.arange(4), "texts": ["a", "b", "c", "d"]}
    assert resized(example, 4, 2)["texts"] == slice_batch(example, 0, 2)["texts"]


def test_packed_sequences_are_of_one_size():
    packed = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    assert resized({"x": torch.ones(2), "packed": packed}, 2, 2)["packed"] is packed
    with pytest.raises(DataError, match="a PackedSequence cannot be split"):
        resized({"x": torch.ones(2), "packed": packed}, 2, 1)
