"""When a step is captured, replayed, captured anew or given up. The graphs are stand-ins that compute on the CPU."""

import gc
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from brim.engine.captured import captured_step as step_room
from brim.engine.captured import graph_cache
from brim.engine.captured.captured_step import MOST_CHANGES, MOST_STRAGGLERS, WARM_UP, CapturedStep
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.graph_cache import MOST_GRAPHS, release_graphs
from brim.engine.captured.inputs import BlockInputs, CopiedInputs, LossRing, read_window
from brim.engine.captured.optimizers import LearningRates
from brim.engine.captured.payoff.decision import Pace
from brim.engine.captured.payoff.prospects import Prospects
from brim.engine.captured.report import Refusal
from brim.engine.components.loss import loss_of
from brim.engine.components.loss_count import CountRule
from brim.engine.components.precision import Precision
from brim.engine.oom.memory_watch import MemoryWatch
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.step_result import StepResult
from brim.errors import ConfigError

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.noise = nn.Linear(3, 5), nn.Linear(5, 1), nn.Dropout(0.0)
        self.factor = 1.0

    def forward(self, x):
        return self.outer(self.noise(self.inner(x)).tanh()) * self.factor


class Replayed(StepGraph):
    """Makes the step on its inputs with every replay, as the graph would on a GPU."""

    shown = 0

    def replay(self):
        if self._ring_size is not None and self._ring is None:
            self._ring = LossRing(self._ring_size, torch.zeros(()), self.inputs.cursor)
        if self._ring is None:
            return self.make_step().clone()
        self._ring.before_replay()
        self.make_step()
        return self._ring.take()

    def show_gradients(self):
        self.shown += 1


class Bench:
    """A captured step whose attempts are told what comes of them, and all that it does."""

    def __init__(self, refusal="", clip_norm=None, **settings):
        torch.manual_seed(0)
        self.model = Net()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.125, momentum=0.5)
        compute = loss_of(self.model, nn.MSELoss())
        self.eager = EagerStep(compute, optimizer, Precision("32", CPU), clip_norm=clip_norm)
        self.optimizer = optimizer
        self.refusal = refusal
        self.told: list[str] = []
        self.attempts: list[int] = []  # lengths of the batches
        self.samples: list[list[list[torch.Tensor]]] = []
        self.eager_steps = 0
        self.saved_seconds: float | None = None
        self.attempt_begins = lambda: None
        self.step = CapturedStep(
            self._inner, self.eager, self.model, None, tell=lambda line, **facts: self.told.append(line), **settings
        )
        self.step._attempt = self._attempt

    def _inner(self, window):
        self.eager_steps += 1
        return self.eager(window)

    def _attempt(self, window, samples):
        self.attempts.append(len(window[0][0]))
        self.samples.append(samples)
        if self.refusal:
            raise Refusal(self.refusal)
        step = self.step
        self.attempt_begins()
        step._rates = step._rates or LearningRates(self.optimizer, CPU, step.rates_move)
        step._rates.follow()
        graph = Replayed(self.eager, window, step._rates, step.in_blocks, step.ring)
        graph.saved_seconds = self.saved_seconds
        return graph

    def __call__(self, *lengths):
        """A step for each length, on new numbers."""
        return [self.step([batch]).loss for batch in batches(*lengths)]

    @property
    def graph(self):
        (graph,) = self.step.graphs.values()
        return graph

    def capture(self, length=4):
        self(*[length] * (WARM_UP + 1))
        assert self.step.graphs
        return self


@pytest.fixture(autouse=True)
def released(monkeypatch):
    """How often memory was given back, without looking through all of Python's objects for it."""
    times: list[torch.device] = []
    monkeypatch.setattr(graph_cache, "release_memory", times.append)
    return times


def batches(*lengths):
    return [(torch.randn(length, 3), torch.randn(length, 1)) for length in lengths]


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_the_first_steps_are_eager_and_the_next_ones_replayed():
    bench = Bench()
    bench(*[4] * WARM_UP)
    assert not bench.attempts and bench.step.report.eager == bench.eager_steps == WARM_UP
    assert not bench.step.report.captured
    bench(*[4] * 5)
    report = bench.step.report
    assert bench.attempts == [4]
    assert report.captured and report.graphs == 1 and report.seconds > 0
    assert (report.replays, report.eager, bench.eager_steps) == (5, WARM_UP, WARM_UP)


@pytest.mark.parametrize("ring", [None, 3])
@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_steps_of_any_shapes_train_what_eager_ones_train(ring, clip_norm):
    lengths = [4, 4, 6, 4, 4, 2, 6, 4, 6, 6, 4, 4, 6, 3, 6, 4] * 3
    plain, bench = Bench(clip_norm=clip_norm), Bench(ring=ring, clip_norm=clip_norm)
    torch.manual_seed(1)
    given = batches(*lengths)
    expected = [float(plain.eager([batch]).loss) for batch in given]
    assert [float(bench.step([batch]).loss) for batch in given] == expected
    assert torch.equal(weights(bench.model), weights(plain.model))
    assert bench.step.report.replays > len(lengths) / 2
    assert bench.step.report.replays + bench.eager_steps == len(lengths)


@pytest.mark.parametrize("window", [2, 3])
def test_windows_of_several_batches_are_captured_as_a_whole(window):
    plain, bench = Bench(), Bench()
    torch.manual_seed(1)
    windows = [batches(*[4] * window) for _ in range(8)]
    for one in windows:
        plain.eager(one)
        bench.step(one)
    assert torch.equal(weights(bench.model), weights(plain.model))
    assert bench.step.report.replays == 8 - WARM_UP and len(bench.graph.inputs.window()) == window


def test_losses_without_a_ring_last_for_ever():
    bench = Bench().capture()
    losses = bench(*[4] * 6)
    values = [float(loss) for loss in losses]
    bench(*[4] * 6)
    assert [float(loss) for loss in losses] == values and len(set(values)) == 6


def test_each_shape_gets_a_graph_of_its_own_and_rare_ones_none():
    bench = Bench()
    bench(*[4, 4, 4, 4, 4, 3] * 3, *[6] * 5)
    assert bench.attempts == [4, 6]
    assert bench.step.report.graphs == 2 and len(bench.step.graphs) == 2


def test_the_last_two_batches_before_capturing_are_kept_for_the_proof():
    bench = Bench()
    given = batches(*[4] * (WARM_UP + 1))
    expected = [[tensor.clone() for tensor in batch] for batch in given[WARM_UP - 2 : WARM_UP]]
    for batch in given:
        bench.step([batch])
        for tensor in batch:
            tensor.zero_()  # a loader may use its memory again
    (samples,) = bench.samples
    assert len(samples) == 2
    for (sample,), batch in zip(samples, expected, strict=True):
        assert all(map(torch.equal, sample, batch))
    assert not bench.step.cache.samples


def test_nothing_is_captured_before_the_size_of_slices_is_settled():
    guard = SimpleNamespace(is_settled=False, memory_reclaimers=[], failures=0, watch=MemoryWatch(CPU))
    bench = Bench(guard=guard)
    bench(*[4] * 10)
    assert not bench.attempts and bench.eager_steps == 10
    guard.is_settled = True
    bench(4)
    assert bench.attempts == [4]


def test_steps_before_it_is_settled_whether_they_are_compiled_are_no_part_of_the_pace():
    guard = SimpleNamespace(is_settled=False, memory_reclaimers=[], failures=0, watch=MemoryWatch(CPU))
    pace = KnownPace()
    bench = Bench(guard=guard, prospects=Prospects(pace, lambda: 1000))
    bench(*[4] * 5)
    assert (pace.marked, pace.forgotten) == (0, 5)
    guard.is_settled = True
    bench(6, 6)
    assert (pace.marked, pace.forgotten) == (2, 5)


def test_the_guard_can_ask_for_the_memory_of_the_graphs_as_long_as_there_are_any():
    guard = SimpleNamespace(is_settled=True, memory_reclaimers=[], failures=0, watch=MemoryWatch(CPU))
    bench = Bench(guard=guard)
    (reclaim,) = guard.memory_reclaimers
    assert not reclaim()
    bench.capture()
    assert reclaim() and not bench.step.graphs
    bench.step = None
    gc.collect()
    assert not reclaim()


def block_rows(count, first=0):
    x, y = torch.randn(4 * count, 3), torch.randn(4 * count, 1)
    return [(x[row : row + 4], y[row : row + 4]) for row in range(first, 4 * count, 4)]


def test_where_blocks_are_to_come_capturing_waits_for_them():
    bench = Bench(feed=SimpleNamespace(hands_out_blocks=True))
    bench(*[4] * (WARM_UP + 2))
    assert not bench.attempts
    for batch in block_rows(3):
        bench.step([batch])
    assert bench.attempts == [4] and isinstance(bench.graph.inputs, BlockInputs)


def test_capturing_does_not_wait_for_blocks_for_ever():
    bench = Bench(feed=SimpleNamespace(hands_out_blocks=True))
    bench(*[4] * (WARM_UP + MOST_STRAGGLERS))
    assert not bench.attempts
    bench(4)
    assert bench.attempts == [4] and isinstance(bench.graph.inputs, CopiedInputs)


def test_rows_are_copied_where_nobody_promised_to_leave_their_blocks_alone():
    bench = Bench()
    for batch in block_rows(WARM_UP + 1):
        bench.step([batch])
    assert isinstance(bench.graph.inputs, CopiedInputs)


def test_steps_on_blocks_train_what_eager_ones_train():
    plain, bench = Bench(), Bench(feed=SimpleNamespace(hands_out_blocks=True), ring=2)
    torch.manual_seed(1)
    given = [*block_rows(3), *batches(4, 3), *block_rows(6), *block_rows(6, first=8), *batches(4)]
    expected = [float(plain.eager([batch]).loss) for batch in given]
    assert [float(bench.step([batch]).loss) for batch in given] == expected
    assert torch.equal(weights(bench.model), weights(plain.model))
    assert isinstance(bench.graph.inputs, BlockInputs) and bench.step.report.replays > 6


def test_gradients_are_shown_again_after_another_graph_or_an_eager_step():
    bench = Bench().capture(4)
    four = bench.graph
    assert four.shown == 1
    bench(4, 4)
    assert four.shown == 1
    bench(*[6] * (WARM_UP + 1))
    six = list(bench.step.graphs.values())[1]
    assert (four.shown, six.shown) == (1, 1)
    bench(4)
    assert four.shown == 2
    bench(5)  # eager
    bench(4, 4, 6)
    assert (four.shown, six.shown) == (3, 2)


CHANGES = {
    "frozen": (lambda b: b.model.inner.requires_grad_(False), "frozen, thawed or switched"),
    "switched": (lambda b: b.model.noise.eval(), "frozen, thawed or switched"),
    "momentum": (lambda b: b.optimizer.param_groups[0].update(momentum=0.25), "settings of the optimizer"),
    "clipped": (lambda b: setattr(b.eager, "clip_norm", 0.5), "settings of the optimizer"),
    "leaves out": (lambda b: setattr(b.eager, "skip_nonfinite", True), "settings of the optimizer"),
    "loaded": (lambda b: b.optimizer.load_state_dict(b.optimizer.state_dict()), "settings of the optimizer"),
    "another group": (
        lambda b: b.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]}),
        "settings of the optimizer",
    ),
    "learning rate": (lambda b: b.optimizer.param_groups[0].update(lr=0.25), "the learning rate moved"),
}


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES)
def test_what_changes_the_step_is_noticed_at_once_and_captured_anew_after_an_eager_step(change, why):
    bench = Bench().capture()
    old = bench.graph
    change(bench)
    bench(4)
    assert not bench.step.graphs and bench.eager_steps == WARM_UP + 1
    assert why in bench.told[-1] and bench.told[-1].startswith("captured anew")
    bench(4, 4)
    assert bench.attempts == [4, 4] and bench.graph is not old
    assert bench.eager_steps == WARM_UP + 1 and bench.step.report.replays == 1 + 2
    assert [len(samples) for samples in bench.samples] == [2, 1]  # the one of after the change
    assert not bench.step.report.reason


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES)
def test_a_change_trains_on_as_in_eager_steps(change, why):
    plain, bench = Bench(), Bench()
    torch.manual_seed(1)
    given = batches(*[4] * 16)
    for number, batch in enumerate(given):
        if number == 8:
            change(plain)
            change(bench)
        plain.eager([batch])
        bench.step([batch])
    assert torch.equal(weights(bench.model), weights(plain.model))


def test_all_shapes_are_captured_anew():
    bench = Bench().capture(4).capture(6)
    bench.model.inner.requires_grad_(False)
    bench(4)
    assert not bench.step.graphs
    bench(6, 4, 6)
    assert bench.attempts == [4, 6, 4, 6] and bench.eager_steps == 2 * WARM_UP + 2


def test_learning_rates_that_have_moved_once_are_followed_from_then_on():
    bench = Bench().capture()
    for number in range(10):
        bench.optimizer.param_groups[0]["lr"] = 2.0**-number
        bench(4)
    assert bench.step.rates_move and bench.attempts == [4, 4]
    assert len(bench.told) == 1 and bench.eager_steps == WARM_UP + 1


def test_learning_rates_that_are_said_to_move_are_followed():
    plain, bench = Bench(), Bench(rates_move=True)
    torch.manual_seed(1)
    for number, batch in enumerate(batches(*[4] * 12)):
        for one in (plain, bench):
            one.optimizer.param_groups[0]["lr"] = 2.0**-number
        plain.eager([batch])
        bench.step([batch])
    assert bench.attempts == [4] and bench.step.report.replays == 12 - WARM_UP
    assert torch.equal(weights(bench.model), weights(plain.model))


def test_what_the_host_keeps_is_looked_at_when_it_is_suspect():
    bench = Bench().capture()
    bench.step.suspect = True
    bench(4)
    assert bench.step.graphs and not bench.step.suspect
    bench.model.factor = 2.0
    bench.step.suspect = True
    bench(4)
    assert not bench.step.graphs and "Net.factor changed" in bench.told[-1]


def test_what_the_host_keeps_is_looked_at_each_step_where_others_code_runs():
    bench = Bench(looks_each_step=True).capture()
    bench(4, 4)
    bench.model.factor = 2.0
    bench(4)
    assert not bench.step.graphs
    bench(4)
    assert bench.graph


def test_weights_that_are_put_elsewhere_are_captured_anew():
    bench = Bench(looks_each_step=True).capture()
    kept = bench.model.inner.weight.data
    bench.model.inner.weight.data = kept.clone()
    bench(4)
    assert "the place of weights or buffers of inner changed" in bench.told[-1]


def change_again_and_again(bench, times):
    for number in range(times):
        bench.optimizer.param_groups[0]["momentum"] = 0.25 + 0.01 * number
        bench(4, 4)


def test_what_changes_again_and_again_is_given_up():
    bench = Bench().capture()
    change_again_and_again(bench, MOST_CHANGES)
    assert bench.step.report.captured and len(bench.attempts) == 1 + MOST_CHANGES
    change_again_and_again(bench, 3)
    report = bench.step.report
    assert report.reason == "what is computed changes again and again: the settings of the optimizer changed"
    assert report.replays > 0 and report.sentence().startswith(f"{report.replays} of ")


def test_after_giving_up_nothing_is_captured_and_nothing_kept():
    bench = Bench().capture()
    change_again_and_again(bench, MOST_CHANGES + 3)
    assert len(bench.attempts) == 1 + MOST_CHANGES
    assert not bench.step.report.captured and not bench.step.graphs


def test_giving_up_is_an_error_where_capturing_is_required():
    bench = Bench(required=True).capture()
    with pytest.raises(ConfigError, match="again and again"):
        change_again_and_again(bench, MOST_CHANGES + 1)


def cycle_momentum(bench, steps):
    for number in range(steps):
        bench(4)
        bench.optimizer.param_groups[0]["momentum"] = 0.4 - 0.01 * number


def test_a_schedule_that_moves_momentum_is_refused_before_anything_is_tried():
    bench = Bench()
    cycle_momentum(bench, 8)
    assert not bench.attempts and bench.eager_steps == 8
    (told,) = bench.told
    assert "momentum of SGD" in told and "cycle_momentum=False" in told
    with pytest.raises(ConfigError, match="cycle_momentum=False"):
        cycle_momentum(Bench(required=True), 8)


def test_a_refusal_is_told_once_and_nothing_is_tried_again():
    bench = Bench(refusal="the reason")
    bench(*[4] * 6, *[6] * 6)
    report = bench.step.report
    assert bench.attempts == [4] and bench.told == ["steps are eager: the reason"]
    assert report.reason == "the reason" and not report.captured
    assert report.eager == bench.eager_steps == 12 and report.replays == 0
    assert report.seconds > 0
    assert report.sentence() == "all 12 steps were eager: the reason"


def test_a_refusal_is_an_error_where_capturing_is_required():
    bench = Bench(refusal="the reason", required=True)
    bench(*[4] * WARM_UP)
    with pytest.raises(ConfigError, match=r"capture='require', and the step cannot be captured: the reason"):
        bench(4)


@pytest.mark.parametrize("required", [True, False])
def test_a_shape_that_is_refused_beside_others_is_eager_and_not_tried_again(required):
    bench = Bench(required=required).capture(4)
    bench.refusal = "the reason"
    bench(*[6] * 10, 4)
    assert bench.attempts == [4, 6] and len(bench.step.graphs) == 1
    assert bench.step.report.captured and not bench.step.report.reason and not bench.told
    assert bench.step.report.replays == 2 and bench.eager_steps == WARM_UP + 10
    assert not bench.step.cache.samples


def test_graphs_give_way_to_steps_that_need_their_memory(released):
    bench = Bench().capture()
    bench.eager.parameters[0].grad = torch.ones_like(bench.eager.parameters[0])
    assert release_graphs(bench.step)
    assert not bench.step.graphs and bench.step._rates is None and released == [CPU]
    assert all(parameter.grad is None for parameter in bench.eager.parameters)  # they lie in the graphs' memory
    assert "memory was needed" in bench.step.report.reason and not bench.step.report.captured
    bench(*[4] * 6)
    assert bench.attempts == [4]


def test_without_graphs_there_is_nothing_to_give():
    bench = Bench()
    bench(4)
    assert not release_graphs(bench.step)
    assert not bench.step.report.reason
    bench.capture()


def test_giving_way_is_an_error_where_capturing_is_required():
    bench = Bench(required=True).capture()
    with pytest.raises(ConfigError, match="memory was needed"):
        release_graphs(bench.step)


def test_the_graph_that_was_captured_first_goes_when_there_are_too_many():
    bench = Bench()
    for length in range(1, MOST_GRAPHS + 2):
        bench.capture(length)
    lengths = [len(graph.inputs.window()[0][0]) for graph in bench.step.graphs.values()]
    assert lengths == list(range(2, MOST_GRAPHS + 2))
    assert bench.step.report.graphs == MOST_GRAPHS


def test_shapes_that_take_turns_are_not_captured_again_and_again():
    """Each capture takes as long as hundreds of steps."""
    bench = Bench()
    bench(*[*range(1, MOST_GRAPHS + 3)] * 20)
    assert len(bench.attempts) <= 2 * (MOST_GRAPHS + 2)
    assert bench.step.report.replays > bench.eager_steps


def test_shapes_that_never_come_again_are_forgotten_and_those_with_graphs_are_not(monkeypatch):
    monkeypatch.setattr(graph_cache, "MOST_SHAPES", 6)
    bench = Bench().capture(4)
    for length in range(5, 25):
        bench(length, length)
        assert len(bench.step.cache.eager_passes) <= 6 and len(bench.step.cache.samples) <= 6
    assert bench.attempts == [4]
    bench(4)
    assert bench.step.report.replays == 2
    bench.capture(3)


STALE = {name: CHANGES[name] for name in ("frozen", "momentum", "another group")}


@pytest.mark.parametrize(("change", "why"), STALE.values(), ids=STALE)
def test_a_change_is_noticed_though_another_shape_is_captured_in_between(change, why):
    bench = Bench().capture(4)
    old = bench.graph
    change(bench)
    bench(*[6] * (WARM_UP + 1))
    bench(4)
    assert old not in bench.step.graphs.values()


class Scaler:
    """Reads the scale from a list: what the device would say after each step."""

    def __init__(self, *scales):
        self.scales = list(scales)

    def get_scale(self):
        return self.scales.pop(0)


def with_an_idle_graph():
    """Captured, by a graph that does nothing."""
    bench = Bench().capture()
    graph = SimpleNamespace(
        logged=list,
        inputs=bench.graph.inputs,
        show_gradients=lambda: None,
        shows_gradients=lambda: True,
        replay=lambda: torch.zeros(()),
    )
    bench.step.graphs.update(dict.fromkeys(bench.step.graphs, graph))
    return bench


def test_whether_a_replay_stepped_is_told_by_the_loss_scale():
    bench = with_an_idle_graph()
    precision = bench.eager.precision
    precision.tells_if_stepped, bench.step._scale = True, 8.0
    stepped = []
    precision.scaler = Scaler(8.0, 4.0, 4.0, 8.0)
    for _ in range(4):
        stepped.append(bench.step(list(batches(4))).stepped)
    assert stepped == [True, False, True, True]


def test_the_loss_scale_of_an_eager_step_counts_for_the_next_replay():
    """It shrank in the eager step: the replay after it has stepped."""
    bench = with_an_idle_graph()
    bench.step.inner = lambda window: StepResult(torch.zeros(()))
    precision = bench.eager.precision
    precision.tells_if_stepped, bench.step._scale, precision.scaler = True, 8.0, Scaler(4.0, 4.0)
    assert [bench.step([batch]).stepped for batch in batches(5, 4)] == [True, True]


def test_the_host_does_not_wait_for_the_loss_scale_where_nobody_asks():
    bench = with_an_idle_graph()
    bench.eager.precision.scaler = Scaler()  # has no answer: asking it would fail
    replays = bench.step.report.replays
    bench(4)
    assert bench.step.report.replays == replays + 1


class StandInTrial:
    """A trial that ends as it is told, and moves the weights as a real one does until they are taken back."""

    error: Exception | None = None
    taken_back = 0

    def __init__(self, graph, windows, model, *_):
        self.graph, self.windows, self.model = graph, windows, model
        self.eager_seconds, self.captured_seconds, self.likeness = 0.004, 0.001, "gradients equal to the bit"
        self.pool_bytes = 3 << 20

    def run(self, required):
        assert not self.graph.eager.precision.tells_if_stepped  # asking would make the host wait
        if StandInTrial.error is not None:
            raise StandInTrial.error

    def take_back(self):
        StandInTrial.taken_back += 1


@pytest.fixture
def attempted(monkeypatch):
    """A bench with the real attempt, around a trial that ends with the error that is handed over."""
    monkeypatch.setattr(step_room, "check_step", lambda *_: None)
    monkeypatch.setattr(step_room, "Trial", StandInTrial)
    monkeypatch.setattr(step_room, "capture_stream", lambda device: None)
    monkeypatch.setattr(step_room, "repair_generator", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(StandInTrial, "taken_back", 0)

    def make(error=None):
        monkeypatch.setattr(StandInTrial, "error", error)
        bench = Bench(graph_type=Replayed)
        del bench.step._attempt
        return bench

    return make


def test_a_trial_that_succeeds_is_told_with_its_gain(attempted):
    bench = attempted()
    bench.eager.precision.tells_if_stepped = True
    bench(*[4] * (WARM_UP + 2))
    report = bench.step.report
    assert report.captured and report.gain == pytest.approx(4.0) and report.replays == 2
    (told,) = bench.told
    for part in ("4.0 times as fast", "1.00 instead of 4.00 ms", "proven over 3 steps: gradients equal to the bit"):
        assert part in told
    assert StandInTrial.taken_back == 1 and bench.eager.precision.tells_if_stepped
    assert bench.optimizer.param_groups[0]["fused"] is True
    bench(*[6] * (WARM_UP + 1))
    assert bench.told[-1].endswith(", graph 2")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Refusal("the reason"), "the reason"), (ValueError("what\nelse"), r"capturing failed .*: ValueError: what")],
)
def test_a_trial_that_fails_leaves_everything_as_it_was(attempted, error, reason):
    plain, bench = Bench(), attempted(error)
    bench.eager.precision.tells_if_stepped = True
    groups = [{**group} for group in bench.optimizer.param_groups]
    torch.manual_seed(1)
    for batch in batches(*[4] * 8):
        plain.eager([batch])
        bench.step([batch])
    assert re.fullmatch(reason, bench.step.report.reason)
    assert StandInTrial.taken_back == 1 and bench.eager.precision.tells_if_stepped
    assert [{**group} for group in bench.optimizer.param_groups] == groups
    assert not hasattr(bench.optimizer, "_step_supports_amp_scaling")
    assert bench.step.cache._pool is None and bench.step._rates is None
    assert torch.equal(weights(bench.model), weights(plain.model))


def test_a_trial_that_fails_beside_a_graph_leaves_the_optimizer_to_it(attempted, monkeypatch):
    bench = attempted().capture(4)
    pool, rates = bench.step.cache._pool, bench.step._rates
    monkeypatch.setattr(StandInTrial, "error", Refusal("the reason"))
    bench(*[6] * (WARM_UP + 1))
    assert bench.optimizer.param_groups[0]["fused"] is True
    assert bench.step.cache._pool is pool and bench.step._rates is rates
    bench(4)
    assert bench.step.report.replays == 2


def test_what_ends_the_run_during_a_trial_is_not_taken_for_a_refusal(attempted):
    bench = attempted(KeyboardInterrupt())
    bench.eager.precision.tells_if_stepped = True
    bench(*[4] * WARM_UP)
    with pytest.raises(KeyboardInterrupt):
        bench(4)
    assert StandInTrial.taken_back == 1 and bench.eager.precision.tells_if_stepped


def test_a_window_is_read_once_a_step(monkeypatch):
    """It is what the host does most of in a replay."""
    bench = Bench().capture()
    reads = []
    monkeypatch.setattr(step_room, "read_window", lambda window: (reads.append(1), read_window(window))[1])
    bench(4, 4, 4)
    assert len(reads) == 3


STEPS = 0
LOG: list[int] = []


class CountsInAGlobal(Net):
    def forward(self, x):
        global STEPS
        STEPS += 1
        return super().forward(x) * (1 + 0.1 * STEPS)


class CountsItself(Net):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Appends(Net):
    def forward(self, x):
        LOG.append(len(x))
        return super().forward(x)


class Draws(Net):
    def forward(self, x):
        return super().forward(x) * float(torch.rand(()))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (CountsInAGlobal, "STEPS changes with every step"),
        (CountsItself, "calls changes with every step"),
        (Appends, "LOG changes with every step"),
        (Draws, "draws random numbers on the host"),
    ],
)
def test_what_a_step_does_on_the_host_is_found_out_in_a_step_that_counts(model, why):
    """No trial is made, so there is nothing to undo: everything is as in a loop of eager steps."""
    bench = Bench()
    torch.manual_seed(0)
    bench.model = bench.step.model = model()
    bench.eager.compute = loss_of(bench.model, nn.MSELoss())
    for group in bench.optimizer.param_groups:
        group["params"] = list(bench.model.parameters())
    steps, logged = STEPS, len(LOG)
    bench(*[4] * (WARM_UP + 3))
    assert why in bench.step.report.reason and not bench.attempts
    assert bench.eager_steps == WARM_UP + 3
    assert STEPS - steps in (0, WARM_UP + 3) and len(LOG) - logged in (0, WARM_UP + 3)
    assert getattr(bench.model, "calls", 0) in (0, WARM_UP + 3)


def test_a_step_in_which_memory_ran_out_tells_nothing_of_the_model():
    """What was done about it (activation checkpointing, say) is no habit of its forward pass."""
    guard = SimpleNamespace(is_settled=True, memory_reclaimers=[], failures=0, watch=MemoryWatch(CPU))
    bench = Bench(guard=guard)
    inner = bench._inner

    def runs_out(window):
        guard.failures += 1
        bench.model.factor = bench.model.factor + 0.0
        bench.model.is_checkpointed = guard.failures
        return inner(window)

    bench.step.inner = runs_out
    bench(*[4] * (WARM_UP + 1))
    assert bench.attempts == [4] and not bench.step.report.reason


def test_what_moves_without_an_optimizer_is_handed_to_the_trial(attempted, monkeypatch):
    handed = []
    made = StandInTrial.__init__

    def note(self, graph, windows, model, loss_fn, stream, pool, on_device, moving, unpadded):
        handed.append(list(moving))
        made(self, graph, windows, model)

    monkeypatch.setattr(StandInTrial, "__init__", note)
    bench = attempted()
    bench.model.follower = nn.Linear(3, 3).requires_grad_(False)
    inner = bench.step.inner

    def following(window):
        bench.model.follower.weight.data.mul_(0.9)
        return inner(window)

    bench.step.inner = following
    bench(*[4] * (WARM_UP + 1))
    assert handed == [["follower.weight (parameter)"]]


def test_a_count_that_becomes_known_later_is_captured_anew():
    bench = Bench().capture()
    bench.eager.compute.count_by(CountRule(path=(1,)))
    bench(4)
    assert not bench.step.graphs and "settings" in bench.told[-1]


class KnownPace:
    """Of steps whose numbers are made up."""

    def __init__(self, seconds=0.01, busy=0.0):
        self.found = Pace(seconds, busy)
        self.marked = self.forgotten = 0

    def begins_step(self):
        pass

    def ends_step(self):
        self.marked += 1

    def read(self, wait=False):
        return self.found

    def forget(self):
        self.forgotten += 1


def with_prospects(monkeypatch, left, seconds=0.01, busy=0.0, took=1.0, saved=0.009, **settings):
    """A bench whose run has so many steps left; an attempt takes ``took`` seconds on a clock of its own."""
    steps = [left]
    now = [0.0]
    monkeypatch.setattr(step_room.time, "perf_counter", lambda: now[0])
    bench = Bench(prospects=Prospects(KnownPace(seconds, busy), lambda: steps[0]), **settings)
    bench.saved_seconds = saved

    def attempt_begins():
        now[0] += took

    bench.attempt_begins = attempt_begins
    inner = bench.step.inner

    def counting(window):
        steps[0] = None if steps[0] is None else steps[0] - 1
        return inner(window)

    bench.step.inner = counting
    return bench


def test_a_run_with_too_few_steps_left_is_not_captured_and_says_so_once(monkeypatch):
    bench = with_prospects(monkeypatch, left=30)
    bench(*[4] * 20)
    assert not bench.attempts and bench.eager_steps == 20
    (told,) = bench.told
    assert told.startswith("steps are eager: capturing takes some 1.2 s, and the 27 steps that are left")
    assert bench.step.report.reason in told


def test_a_busy_device_is_not_captured(monkeypatch):
    bench = with_prospects(monkeypatch, left=100_000, busy=0.97)
    bench(*[4] * 8)
    assert not bench.attempts and "the GPU is the limit" in bench.step.report.reason


def test_what_is_required_is_tried_whatever_it_costs(monkeypatch):
    bench = with_prospects(monkeypatch, left=6, busy=1.0, required=True)
    bench(*[4] * 5)
    assert bench.attempts == [4]


def test_a_long_run_on_an_idle_device_is_captured_at_once(monkeypatch):
    bench = with_prospects(monkeypatch, left=10_000)
    bench(*[4] * 6)
    assert bench.attempts == [4] and bench.step.report.replays == 3
    assert bench.step.prospects.pace.marked == WARM_UP  # replays are not marked


def test_shapes_that_come_too_seldom_stay_eager_and_that_is_said_once(monkeypatch):
    """Two hundred steps with four shapes: each attempt costs more than all steps of its shape."""
    bench = with_prospects(monkeypatch, left=200)
    bench(*[4, 5, 6, 7] * 50)
    assert not bench.attempts and bench.eager_steps == 200
    first, *rest = bench.told
    assert "comes too seldom" in first and len(rest) <= 1  # and once more when nothing can pay any more
    assert not bench.step.cache.samples


def test_a_shape_that_comes_often_is_captured_beside_rare_ones(monkeypatch):
    bench = with_prospects(monkeypatch, left=1_000)
    bench(*[4, 4, 4, 4, 4, 4, 4, 4, 4, 9] * 5)
    assert bench.attempts == [4]


def test_of_many_shapes_the_graphs_of_the_commonest_are_kept(monkeypatch):
    bench = with_prospects(monkeypatch, left=None, saved=1.0, took=0.1)
    rare = [5, 6, 7, 8]
    bench(*[length for length in rare for _ in range(5)])
    assert len(bench.step.graphs) == MOST_GRAPHS
    bench(*[4] * 12)
    assert len(bench.step.graphs) == MOST_GRAPHS
    assert any(graph.inputs.window()[0][0].shape[0] == 4 for graph in bench.step.graphs.values())


def test_graphs_that_are_dropped_before_they_have_paid_are_made_twice_and_no_more(monkeypatch):
    bench = with_prospects(monkeypatch, left=100_000)
    bench.capture()
    change_again_and_again(bench, 5)
    assert len(bench.attempts) == 2
    assert "changes again and again" in bench.step.report.reason


def test_a_failed_attempt_leaves_no_peak_behind():
    """Its memory is given back before the peak is forgotten; one that succeeds keeps its memory, and counts."""
    calls = []
    watch = SimpleNamespace(
        before_attempt=lambda: calls.append("before"), attempt_failed=lambda: calls.append("failed"),
        attempt_kept=lambda: calls.append("kept"),
    )  # fmt: skip
    guard = SimpleNamespace(is_settled=True, memory_reclaimers=[], failures=0, watch=watch)
    Bench(guard=guard).capture()
    assert calls == ["before", "kept"]
    Bench(refusal="the reason", guard=guard)(*[4] * 6)
    assert calls == ["before", "kept", "before", "failed"]
