import json
from itertools import pairwise

import pytest
import torch
from helpers.clock import Clock
from torch import nn

import brim
from brim.engine.step import threads as room
from brim.engine.step.threads import (
    LOOK_AFTER,
    LOOK_SHARE,
    AdaptiveThreads,
    ThreadTrial,
    fastest,
    fastest_beside,
    steps_to_next_look,
    thread_candidates,
    with_threads,
)


@pytest.fixture(autouse=True)
def _restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("cores", "candidates"), [(1, [1]), (2, [1, 2]), (3, [1, 3]), (16, [1, 8, 16])])
def test_one_half_and_all_are_tried(cores, candidates):
    assert thread_candidates(cores) == candidates


def test_the_fastest_wins_and_a_tie_goes_to_fewer():
    assert fastest({1: [3.0, 3.1], 2: [1.0, 9.0, 1.1], 4: [2.0]}) == 2
    assert fastest({1: [1.0], 2: [0.99]}) == 1


@pytest.fixture
def run_trial(monkeypatch):
    """A trial over steps whose duration depends on the thread count."""
    clock = Clock()
    monkeypatch.setattr(room, "time", clock)
    return lambda seconds_of: trial_of(seconds_of, clock)


def trial_of(seconds_of, clock):
    decisions = []
    seen = []

    def step(window):
        seen.append(torch.get_num_threads())
        clock.sleep(seconds_of[torch.get_num_threads()])
        return torch.tensor(float(len(seen)))

    trial = ThreadTrial(step, sorted(seconds_of), lambda choice, times: decisions.append((choice, times)))
    losses = [trial([None]).item() for _ in range(400)]
    assert losses == [float(n + 1) for n in range(400)]  # every call was one real step
    return decisions, seen


def test_a_trial_keeps_the_fastest_and_tells_once(run_trial):
    decisions, seen = run_trial({1: 0.02, 2: 0.002})
    assert [choice for choice, _ in decisions] == [2]
    assert set(decisions[0][1]) == {1, 2}
    assert seen[-10:] == [2] * 10


def test_a_hopeless_candidate_is_not_tried_again(run_trial):
    _, seen = run_trial({1: 0.0002, 2: 0.02})
    assert seen.count(2) <= 3
    assert seen[-10:] == [1] * 10


def test_steps_of_which_some_are_very_slow_are_judged_by_their_mean(monkeypatch):
    # Two threads that wait for each other beside other work: of three steps two are quick, and one is not.
    machine = Machine(monkeypatch, {1: 0.002, 2: 0.001})
    pace, of_two = dict(machine.seconds_of), []

    def step(window):
        if torch.get_num_threads() == 2:
            of_two.append(None)
            machine.seconds_of[2] = 0.012 if len(of_two) % 3 == 0 else pace[2]
        return machine.step(window)

    decisions = []
    trial = ThreadTrial(step, [1, 2], lambda choice, times: decisions.append((choice, times)))
    for _ in range(2000):
        trial([None])
    ((choice, times),) = decisions
    assert choice == 1 and times[2] > 0.003 > times[1]


def test_steps_of_one_count_are_timed_in_a_row(run_trial):
    _, seen = run_trial({1: 0.012, 2: 0.013})
    switches = [place for place, (one, other) in enumerate(pairwise(seen)) if one != other]
    assert len(switches) > 2 and all(later - one >= 8 for one, later in pairwise(switches))


def test_a_given_number_is_set_and_the_step_is_left_alone():
    def step(window):
        return torch.zeros(())

    assert with_threads(step, 1, lambda *_: None) is step
    assert torch.get_num_threads() == 1


def test_another_number_must_gain_a_tenth_over_the_current_one():
    assert fastest_beside({1: [1.0], 2: [0.95]}, current=1) == 1
    assert fastest_beside({1: [1.0], 2: [0.85]}, current=1) == 2
    assert fastest_beside({1: [0.95], 2: [1.0]}, current=2) == 2  # fewer threads are no reason by themselves
    assert fastest_beside({1: [0.2], 2: [1.0]}, current=2) == 1
    assert fastest_beside({1: [0.2, 9.0, 0.2], 8: [0.3]}, current=4) == 1  # one that this machine does not have


def test_a_look_that_lost_more_is_followed_by_more_steps():
    assert steps_to_next_look(lost=0.0, step=0.001) == LOOK_AFTER
    assert steps_to_next_look(lost=1.0, step=0.01) == round(1.0 / (LOOK_SHARE * 0.01))


class Machine:
    """Steps that take as long as their thread count says, on a clock of their own."""

    def __init__(self, monkeypatch, seconds_of):
        self.clock = Clock()
        monkeypatch.setattr(room, "time", self.clock)
        self.seconds_of = seconds_of
        self.seen = []
        self.decisions = []

    def step(self, window):
        self.seen.append(torch.get_num_threads())
        self.clock.sleep(self.seconds_of[torch.get_num_threads()])
        return torch.tensor(float(len(self.seen)))

    def adaptive(self, threads=None):
        decided = lambda choice, times: self.decisions.append(choice)  # noqa: E731
        return AdaptiveThreads(self.step, sorted(self.seconds_of), decided, threads)


def make_steps(step, number):
    before = step([None]).item()
    losses = [step([None]).item() for _ in range(number - 1)]
    assert losses == [before + n + 1 for n in range(number - 1)]  # every call was one real step


def test_a_machine_that_becomes_busy_and_idle_again_is_followed(monkeypatch):
    machine = Machine(monkeypatch, {1: 0.02, 2: 0.01})
    step = machine.adaptive()
    assert step.is_trying
    make_steps(step, 200)
    assert machine.decisions == [2] and machine.seen[-1] == 2 and not step.is_trying
    machine.seconds_of = {1: 0.02, 2: 0.2}
    make_steps(step, LOOK_AFTER)
    assert machine.decisions == [2, 1] and machine.seen[-1] == 1
    machine.seconds_of = {1: 0.02, 2: 0.01}
    make_steps(step, 1500)
    assert machine.decisions == [2, 1, 2] and machine.seen[-1] == 2


def test_looks_take_a_bounded_share_of_the_time(monkeypatch):
    machine = Machine(monkeypatch, {1: 0.001, 2: 0.1})
    step, began = machine.adaptive(threads=1), machine.clock.now
    make_steps(step, 40_000)
    ideal = len(machine.seen) * 0.001
    assert machine.seen.count(2) >= 4  # it did look
    assert machine.clock.now - began <= (1 + LOOK_SHARE) * ideal + 0.3  # and what the last look lost
    assert machine.decisions == []  # nothing has changed, so there is nothing to tell


def test_what_an_earlier_run_found_is_gone_on_with(monkeypatch):
    machine = Machine(monkeypatch, {1: 0.01, 2: 0.01})
    step = machine.adaptive(threads=2)
    make_steps(step, LOOK_AFTER - 1)
    assert set(machine.seen) == {2}


def test_a_run_that_adapts_trains_the_same_to_rounding_and_goes_on_with_what_was_found(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "usable_cores", lambda: 2)
    monkeypatch.setattr(room, "LOOK_AFTER", 3)
    for seconds in ("TRIAL_SECONDS", "BLOCK_SECONDS", "LOOK_BLOCK_SECONDS"):
        monkeypatch.setattr(room, seconds, 0.0)
    torch.manual_seed(0)
    batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(40)]

    def train(name, resume=None, **settings):
        torch.manual_seed(1)
        model = nn.Linear(4, 1)
        run = {"run_dir": tmp_path / name, "optimizer": "sgd", "lr": 0.1, **settings}
        brim.Trainer(model, batches, loss_fn=nn.MSELoss(), device="cpu", **run).fit(resume=resume)
        return model.weight.detach()

    fixed, adaptive = train("fixed", threads=1), train("adaptive", threads="adaptive")
    assert torch.allclose(fixed, adaptive)
    progress = next((tmp_path / "adaptive" / "checkpoints").glob("step-*/progress.json"))
    assert json.loads(progress.read_text())["threads"] in (1, 2)
    resumed = train("adaptive", threads="adaptive", epochs=2, resume="auto")
    assert torch.allclose(train("longer", threads=1, epochs=2), resumed)


def test_where_there_is_one_core_there_is_nothing_to_adapt(monkeypatch):
    monkeypatch.setattr(room, "usable_cores", lambda: 1)

    def step(window):
        return torch.zeros(())

    assert with_threads(step, None, lambda *_: None, is_adaptive=True) is step
