"""When an attempt is made, put off or never made: steps counted by shape, what attempts have cost."""

from brim.engine.captured.payoff.decision import NEVER, TRY, WAIT, Pace
from brim.engine.captured.payoff.eager_pace import EagerPace
from brim.engine.captured.payoff.prospects import MOST_SHAPES, MOST_WAITS, Prospects
from tests.helpers.simulated_gpu import SimulatedGpu

A, B, C = ("a",), ("b",), ("c",)


class Known:
    def __init__(self, found):
        self.found = found

    def read(self, wait=False):
        return self.found

    def forget(self):
        self.found = None


HUNDREDTH = Pace(0.01)


def prospects(left=None, pace=HUNDREDTH):
    return Prospects(Known(pace), lambda: left)


def seen(made, **steps):
    for shape, count in steps.items():
        for _ in range(count):
            made.note_step((shape,))
    return made


def test_until_the_pace_is_known_it_is_waited_for_a_few_steps():
    made = seen(prospects(10_000, pace=None), a=3)
    assert [made.decide(A, {}, 4).verdict for _ in range(MOST_WAITS)] == [WAIT] * MOST_WAITS
    assert made.decide(A, {}, 4).verdict == TRY


def test_a_device_far_behind_the_host_is_waited_for_before_an_attempt_and_found_to_be_the_limit():
    gpu = SimulatedGpu()
    made = Prospects(EagerPace(gpu, gpu.clock), lambda: 10_000)
    decisions = []
    for _ in range(MOST_WAITS + 1):
        made.note_step(A)
        decisions.append(made.decide(A, {}, 4))
        made.pace.begins_step()
        for _ in range(20):
            gpu.launch(6e-3)
        made.pace.ends_step()
    assert [each.verdict for each in decisions[:-1]] == [WAIT] * MOST_WAITS
    assert decisions[-1].verdict == NEVER and "the GPU is the limit" in decisions[-1].reason
    assert gpu.synchronised == 1


def test_a_pace_that_was_read_once_is_kept_while_the_next_is_unknown():
    made = seen(prospects(10, pace=Pace(0.01)), a=3)
    assert made.decide(A, {}, 4).verdict == NEVER
    made.pace.found = None
    assert made.decide(A, {}, 4).verdict == NEVER


def test_shapes_are_judged_by_their_part_of_the_steps():
    made = seen(prospects(400), a=99, b=1)
    assert made.decide(A, {}, 4).verdict == TRY
    assert made.decide(B, {}, 4).verdict == WAIT


def test_after_an_attempt_its_own_cost_and_gain_count():
    made = seen(prospects(400), a=50, b=50)
    assert made.decide(A, {}, 4).verdict == TRY
    made.note_attempt(10.0, saved=0.005)
    assert made.decide(B, {A: 1}, 4).verdict == NEVER  # 400 steps save 2 s
    made.note_attempt(0.5, saved=None)  # one that failed: what replays save is known from before
    assert made.decide(B, {A: 1}, 4).verdict == TRY


def test_a_shape_that_would_push_another_out_counts_what_it_comes_more_often():
    made = seen(prospects(1_000), a=40, b=60, c=10)
    assert made.decide(A, {}, 3).verdict == TRY
    made.note_attempt(1.0, saved=0.01)
    assert made.decide(B, {A: 1, C: 1}, 3).verdict == TRY
    assert made.decide(B, {A: 1, C: 1}, 2).verdict == TRY  # 50 of 110, more than C
    assert made.decide(B, {A: 1}, 1).verdict == TRY
    assert made.decide(C, {A: 1, B: 1}, 2).verdict == WAIT
    assert made.least_used({A: 1, B: 1, C: 1}) == C


def test_shapes_without_end_are_not_all_remembered():
    made = prospects()
    for number in range(3 * MOST_SHAPES):
        made.note_step((number,))
        made.note_step(A)
    assert len(made._seen) <= MOST_SHAPES and made._seen[A] == 3 * MOST_SHAPES


def test_graphs_dropped_too_early_twice_are_given_up():
    made = seen(prospects(), a=3)
    made.note_attempt(1.0, saved=0.01)
    assert not made.note_drop(1_000)
    assert not made.note_drop(5)
    assert made.note_drop(5)
