import pytest
import torch
from torch import nn

from brim.data import slice_batch
from brim.engine.step.resized import alike, resized
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


# Optimizers for other parameters


class Own(torch.optim.Optimizer):
    def __init__(self, params, lr, factor=1.0):
        super().__init__(params, {"lr": lr, "factor": factor})

    def step(self, closure=None):
        pass


class Passing(torch.optim.SGD):
    def __init__(self, params, **settings):
        super().__init__(params, **settings)


class Inheriting(torch.optim.AdamW):
    pass


@pytest.mark.parametrize(
    "maker",
    [
        lambda p: torch.optim.AdamW(p, lr=0.5, betas=(0.1, 0.2), weight_decay=0.3, amsgrad=True, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.5, fused=True),
        lambda p: torch.optim.Adam(p, decoupled_weight_decay=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
        lambda p: torch.optim.Adafactor(p),
        lambda p: Own(p, 0.25, factor=3.0),
        lambda p: Inheriting(p, lr=0.25, amsgrad=True),
        lambda p: Passing(p, lr=0.1, momentum=0.9),
    ],
    ids=["AdamW", "fused", "Adam", "SGD", "RMSprop", "Adafactor", "own", "inheriting", "passing on"],
)
def test_optimizers_keep_class_and_settings(maker):
    first, second = nn.Linear(4, 4), nn.Linear(3, 3)
    original = maker(first.parameters())
    made = alike(original, iter(second.parameters()))
    assert type(made) is type(original)
    assert [id(p) for p in made.param_groups[0]["params"]] == [id(p) for p in second.parameters()]
    left, right = ({k: v for k, v in o.param_groups[0].items() if k != "params"} for o in (made, original))
    assert left == right
    assert len(original.param_groups[0]["params"]) == 2


def test_what_a_scheduler_adds_to_the_groups_is_no_setting():
    original = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    torch.optim.lr_scheduler.LinearLR(original)
    assert alike(original, nn.Linear(2, 2).parameters()).param_groups[0]["momentum"] == 0
