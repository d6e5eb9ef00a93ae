"""Who ends a run before its time: alone at once, over ranks when all know."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from brim.engine.checkpoints.checkpoint import step_name
from brim.engine.distributed.ranks import Ranks
from brim.engine.run.stopping import ANOTHER_RANK, Stopping
from brim.engine.step.step_result import StepResult
from brim.errors import Interrupted, Preempted


def one_of_two(others_ask=False):
    """A rank, and what its only collective says of the other one."""
    return SimpleNamespace(is_alone=False, any_rank=lambda flag: flag or others_ask)


def test_alone_a_reason_or_a_signal_is_enough():
    stopping = Stopping(Ranks())
    assert not stopping.is_due()
    stopping.reason = "a callback"
    assert stopping.is_due() and stopping.requests == (False, True)
    signalled = Stopping(Ranks())
    signalled.interrupt.requested = True
    assert signalled.is_due()
    signalled.exchange_interrupts()
    assert signalled.was_interrupted and signalled.is_agreed


def test_one_of_several_ranks_goes_on_until_all_know():
    stopping = Stopping(one_of_two())
    stopping.reason = "a callback"
    assert not stopping.is_due()
    stopping.exchange_reasons()
    assert stopping.is_due() and stopping.reason == "a callback"


def test_what_another_rank_asked_for_is_said_so():
    stopping = Stopping(one_of_two(others_ask=True))
    stopping.exchange_reasons()
    assert stopping.is_due() and stopping.reason == ANOTHER_RANK


@pytest.mark.parametrize(
    ("told", "interrupted", "reason"),
    [({}, False, None), ({"stop_requested": True}, False, ANOTHER_RANK), ({"signalled": True}, True, None)],
    ids=str,
)
def test_what_comes_with_the_gradients_is_heard(told, interrupted, reason):
    stopping = Stopping(one_of_two())
    stopping.read_requests(StepResult(torch.zeros(()), **told))
    assert (stopping.was_interrupted, stopping.reason, stopping.is_due()) == (interrupted, reason, bool(told))


def test_the_first_reason_counts():
    stopping = Stopping(Ranks())
    stopping.reason = "first"
    stopping.decide("second")
    assert stopping.reason == "first"


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        (Path(step_name(7)), f"; checkpoint: {step_name(7)}"),
        (Path(step_name(3)), f"its checkpoint could not be written, the newest is {step_name(3)}"),
        (None, "no checkpoint could be written"),
    ],
)
def test_the_error_names_where_to_go_on(newest, said):
    stopping = Stopping(Ranks())
    stopping.interrupt.by = "Ctrl-C"
    error = stopping.error(7, newest)
    assert isinstance(error, Interrupted)
    assert "stopped by Ctrl-C after step 7" in str(error) and said in str(error)
    stopping.interrupt.by = "SIGTERM"
    assert isinstance(stopping.error(7, newest), Preempted)


def test_nobody_is_named_where_nobody_asked():
    stopping = Stopping(Ranks())
    stopping.exchange_interrupts()
    assert not stopping.was_interrupted and stopping.interrupt.by == ""
