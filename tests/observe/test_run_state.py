import os

import pytest
from helpers.runs import lock_run, write_run

from brim.observe.run_state import state_of
from brim.record.run_lock import STALE_S

ELSEWHERE = {"machine": "another", "host": "node7"}


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def test_a_run_whose_process_lives_is_running_whatever_it_wrote(run):
    owner = lock_run(run)
    found = state_of(run, {"ended": "done"}, {"kind": "failed"})
    assert (found.word, found.owner) == ("running", owner)
    assert f"process {os.getpid()}" in found.detail


@pytest.mark.parametrize("changes", [{"started": "12"}, {"process": 2**30}, {"folder": "1-2"}])
def test_a_run_whose_process_is_gone_was_interrupted(run, changes):
    lock_run(run, **changes)
    found = state_of(run, {}, {"kind": "epoch"})
    assert found.word == "interrupted" and found.detail.endswith("is gone: killed, or its machine went down")


def test_an_owner_on_another_machine_is_judged_by_its_sign_of_life(run):
    lock_run(run, age=STALE_S / 2, **ELSEWHERE)
    assert state_of(run, {}, {}).word == "running"
    assert "on node7" in state_of(run, {}, {}).detail
    lock_run(run, age=2 * STALE_S, **ELSEWHERE)
    assert state_of(run, {}, {}).word == "interrupted"


@pytest.mark.parametrize(
    ("result", "event", "state"),
    [
        ({"ended": "done"}, {}, ("finished", "")),
        ({"ended": "no improvement in 3 evaluations"}, {}, ("finished", "no improvement in 3 evaluations")),
        ({}, {"kind": "failed", "line": "ended with an error: no data"}, ("failed", "no data")),
        ({}, {"kind": "interrupted", "by": "Ctrl-C"}, ("interrupted", "by Ctrl-C")),
        ({}, {"kind": "interrupted"}, ("interrupted", "by a signal")),
        ({}, {"kind": "epoch"}, ("unfinished", "nothing in the folder says how it ended")),
        ({}, {}, ("unfinished", "nothing in the folder says how it ended")),
    ],
)
def test_a_run_that_nobody_holds_is_judged_by_what_it_wrote(run, result, event, state):
    found = state_of(run, result, event)
    assert (found.word, found.detail) == state and found.owner is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": 1}', '{"process": Infinity}', "\0", "[" * 100_000])
def test_a_broken_lock_names_nobody(run, content):
    (run / "run.lock").write_text(content)
    assert state_of(run, {}, {}).word == "unfinished"


def test_a_folder_that_is_gone_is_not_running(run):
    lock_run(run)
    owner = state_of(run, {}, {}).owner
    (run / "run.lock").unlink()
    assert owner is not None and state_of(run, {}, {}).word == "unfinished"
