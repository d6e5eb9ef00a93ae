import torch

from brim.hardware.cards import H200
from brim.memory.kernels.scope import Call, Scope, ScopeEvent


def test_steps_are_kept_in_order() -> None:
    scope = Scope()
    first = scope.allocate(100)
    scope.output(0)
    second = scope.allocate(200)
    scope.free(first)
    scope.close()
    assert scope.steps == [
        ScopeEvent(temporary=first, size=100),
        ScopeEvent(output=0),
        ScopeEvent(temporary=second, size=200),
        ScopeEvent(temporary=first, size=-1),
        ScopeEvent(temporary=second, size=-1),
    ]


def test_nothing_is_given_back_twice() -> None:
    scope = Scope()
    number = scope.allocate(100)
    scope.free(number)
    scope.free(number)
    scope.close()
    assert [step.size for step in scope.steps] == [100, -1]


def test_a_passing_temporary_is_gone_at_once() -> None:
    scope = Scope()
    scope.workspace(100)
    scope.workspace(50)
    assert [(step.temporary, step.size) for step in scope.steps] == [(0, 100), (0, -1), (1, 50), (1, -1)]


def test_an_argument_is_found_wherever_it_was_put() -> None:
    call = Call("aten.sum.dim_IntList", (torch.ones(2), 1), {"keepdim": True}, (None,), H200)
    assert call.argument(1, "dim") == 1
    assert call.argument(2, "keepdim") is True
    assert call.argument(3, "dtype", "none") == "none"
