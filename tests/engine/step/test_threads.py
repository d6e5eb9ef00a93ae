import pytest
import torch
from helpers.clock import Clock

from brim.engine.step import threads as room
from brim.engine.step.threads import ThreadTrial, fastest, thread_candidates, with_threads


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
    losses = [trial([None]).item() for _ in range(40)]
    assert losses == [float(n + 1) for n in range(40)]  # every call was one real step
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


def test_a_given_number_is_set_and_the_step_is_left_alone():
    def step(window):
        return torch.zeros(())

    assert with_threads(step, 1, lambda *_: None) is step
    assert torch.get_num_threads() == 1
