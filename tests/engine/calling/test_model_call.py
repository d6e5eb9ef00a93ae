import gc
import weakref

import pytest
import torch
from torch import nn

from brim.engine.calling.model_call import arguments_of, call_model, is_spread, named_inputs, takes_by_name

A, B = torch.ones(3, 2), torch.full((3, 2), 2.0)


def with_forward(forward):
    return type("Mine", (nn.Module,), {"forward": forward})()


ONE = with_forward(lambda self, x: x)
PAIR = with_forward(lambda self, left, right: left - right)
OPTIONAL = with_forward(lambda self, x, mask=None: (x, mask))
ANY = with_forward(lambda self, *inputs, **named: (inputs, named))


def test_a_tensor_is_the_one_argument():
    assert call_model(ONE, A) is A
    assert call_model(OPTIONAL, A) == (A, None)


def test_several_inputs_are_spread_where_forward_needs_several():
    assert torch.equal(call_model(PAIR, (A, B)), A - B)
    assert torch.equal(call_model(PAIR, [A, B]), A - B)
    assert not is_spread(PAIR, (A,))


@pytest.mark.parametrize("model", [ONE, OPTIONAL, ANY])
def test_a_tuple_stays_whole_where_forward_can_take_it_as_one_object(model):
    pair = (A, B)
    seen = call_model(model, pair)
    assert seen is pair or seen[0] is pair or seen[0][0] is pair


def test_a_dict_goes_by_names_where_all_of_them_are_arguments():
    assert torch.equal(call_model(PAIR, {"right": B, "left": A}), A - B)
    assert call_model(OPTIONAL, {"x": A, "mask": B}) == (A, B)


def test_a_dict_with_other_keys_stays_whole():
    batch = {"image": A}
    assert call_model(ONE, batch) is batch
    assert not takes_by_name(PAIR, {"left": A})


def test_a_compiled_module_takes_what_the_one_within_takes():
    compiled = torch.compile(PAIR, backend="eager")
    assert arguments_of(compiled).required == ("left", "right")
    assert torch.equal(call_model(compiled, (A, B)), A - B)


def test_a_forward_that_was_replaced_on_the_object_is_asked():
    model = with_forward(lambda self, x: x)
    model.forward = lambda left, right: left - right
    assert torch.equal(call_model(model, (A, B)), A - B)


def test_of_a_batch_with_labels_the_inputs_go_by_name():
    assert named_inputs(ONE, {"x": A, "y": B}) == {"x": A}
    assert named_inputs(ONE, {"image": A}) is None
    assert named_inputs(PAIR, {"left": A, "labels": B}) is None


def replaced_forward(forward):
    return lambda x: forward(x).float()  # as accelerate does


def test_a_model_whose_forward_was_replaced_goes_when_its_user_lets_go_of_it():
    model = nn.Linear(2, 1)
    model.forward = replaced_forward(model.forward)
    assert arguments_of(model).required == ("x",)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
