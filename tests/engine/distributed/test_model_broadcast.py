"""What ranks do not have alike of a model is found, whatever its tensors are."""

import torch
from torch import nn

from brim.engine.distributed.model_broadcast import remark_on_differences


class Among:
    """This process and another one, which has another model."""

    def __init__(self, other):
        self.other = other

    def all_gather_object(self, own):
        if self.other is None:
            return [own]
        theirs = Among(None)
        found = []
        theirs.all_gather_object = lambda marks: found.append(marks) or [marks]
        remark_on_differences(self.other, theirs)
        return [own, *found]


class Tagged(torch.Tensor):
    """Weights of a library's own type, which cannot be looked at as bits."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.view:
            raise NotImplementedError("it has no bits")
        return super().__torch_function__(func, types, args, kwargs or {})


def linear(weight=1.0):
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model


def test_weights_that_differ_are_named_and_others_are_not():
    assert remark_on_differences(linear(), Among(linear())) is None
    assert remark_on_differences(linear(), Among(linear(2.0))).startswith("weight: not the same on all ranks")


def test_an_empty_buffer_that_only_one_rank_has_is_no_error():
    model = linear()
    model.register_buffer("seen", torch.empty(0))
    assert remark_on_differences(model, Among(linear())) is None


def test_weights_of_a_type_of_their_own_are_left_out():
    model = linear()
    model.register_buffer("scales", torch.ones(2).as_subclass(Tagged))
    assert remark_on_differences(model, Among(model)) is None
