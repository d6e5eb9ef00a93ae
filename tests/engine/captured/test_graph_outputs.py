import math
from types import SimpleNamespace

import pytest
import torch

from brim.engine.captured.graph_outputs import check_outputs, copied, difference, poison
from brim.engine.captured.report import Refusal


def test_copies_are_nested_as_the_outputs_and_stay_when_those_are_overwritten():
    outputs = {"logits": torch.ones(2), "rest": [torch.arange(2), None, "name", 3]}
    copy = copied(outputs)
    poison(outputs)
    assert outputs["logits"].isnan().all() and torch.equal(copy["logits"], torch.ones(2))
    assert torch.equal(copy["rest"][0], torch.arange(2)) and copy["rest"][1:] == [None, "name", 3]


def test_outputs_of_transformers_keep_their_class():
    outputs = pytest.importorskip("transformers.modeling_outputs").SequenceClassifierOutput(logits=torch.ones(2))
    check_outputs(outputs)
    copy = copied(outputs)
    assert type(copy) is type(outputs) and torch.equal(copy.logits, outputs.logits)


def test_an_object_that_may_hold_tensors_is_refused_by_name():
    with pytest.raises(Refusal, match="SimpleNamespace"):
        check_outputs((torch.ones(1), SimpleNamespace(cache=torch.ones(1))))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2).double()),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.zeros(2), torch.ones(2)),
        (torch.ones(2), torch.tensor([1.0, math.nan])),
        (torch.tensor([1.0, math.inf]), torch.tensor([2.0, math.inf])),
        ((torch.ones(1), 1), (torch.ones(1), 2)),
        ((torch.ones(1),), (torch.ones(1), torch.ones(1))),
        (torch.ones(1), None),
    ],
)
def test_what_is_unlike_is_infinitely_far_apart(one, other):
    assert difference(one, other) == math.inf


def test_equal_to_the_bit_is_no_difference_at_all():
    outputs = (torch.tensor([1.0, math.nan, math.inf]), torch.tensor([True]), None, 2)
    assert difference(outputs, copied(outputs)) == 0.0
    assert difference(None, None) == 0.0
