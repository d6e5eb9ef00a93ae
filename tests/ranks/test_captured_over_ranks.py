"""Captured steps of several ranks, on CPUs: graphs are stand-ins that compute, everything between the ranks is real."""

import os
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from rank_training import SAMPLES, X, Y, are_the_same_bits, difference, net, sgd, this_rank
from torch import nn

import brim
from brim.data.randomness.order import rank_bounds
from brim.engine.captured.captured_step import WARM_UP, CapturedStep
from brim.engine.captured.exchanged_gradients import ExchangedGradients
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.graph_cache import release_graphs
from brim.engine.captured.inputs import read_window
from brim.engine.captured.optimizers import LearningRates
from brim.engine.captured.over_ranks import CapturedOverRanks
from brim.engine.captured.report import Refusal
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.distributed.model_broadcast import broadcast_model
from brim.engine.distributed.ranks import Ranks
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.replicated_step import ReplicatedStep
from brim.errors import ConfigError

CPU = torch.device("cpu")
BATCH, EPOCHS = 16, 3
WHOLE = SAMPLES // BATCH  # batches of an epoch; one of three samples follows


class Halves(StepGraph):
    """Both halves are computed at every replay, as graphs would on a GPU."""

    def replay(self):
        self._before_exchange()
        self.exchanged.all_reduce()
        return self._after_exchange().clone()


class Exchanging(nn.Module):
    """Asks the other ranks for something in the middle of the step."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        found = self.inner(x)
        mean = found.detach().mean()
        torch.distributed.all_reduce(mean)
        return found - mean


class Bench:
    """Steps of one rank; ``refuses``: the rank that finds at its trial that it cannot capture."""

    def __init__(self, refuses=None, required=False, clip_norm=None, tokens=False, model=None, loss_fn=None):
        self.ranks = Ranks.from_environment()
        self.ranks.join(CPU)
        self.model = model or net()
        broadcast_model(self.model, self.ranks)
        compute = self.count_tokens if tokens else loss_of(self.model, loss_fn or nn.MSELoss())
        self.eager = EagerStep(compute, sgd(self.model.parameters()), Precision("32", CPU), clip_norm=clip_norm)
        self.replicated = ReplicatedStep(self.eager, self.ranks)
        self.refuses = refuses
        self.checks = model is not None
        self.told = []
        self.results = []
        guard = GuardedStep(self.eager, self.model, replicated=self.replicated)
        make = partial(
            CapturedStep, guard, self.eager, self.model, None, required, lambda line, **facts: self.told.append(line),
            guard,
        )  # fmt: skip
        self.step = CapturedOverRanks(self.replicated, make)
        self.captured = self.step.captured
        self.captured._attempt = self._attempt

    def count_tokens(self, batch):
        x, y = batch
        weights = 1 + (x[:, 0] > 0).float()  # another sum on every rank
        return brim.Loss(((self.model(x) - y).square().squeeze(1) * weights).sum(), weights.sum())

    def _attempt(self, window, samples):
        if self.refuses == this_rank():
            raise Refusal("of a reason of its own")
        if self.checks:
            self.captured.check_shape(read_window(window)[1])
        rates = LearningRates(self.eager.optimizer, CPU, False)
        self.captured._rates = self.captured._rates or rates
        return Halves(self.eager, window, self.captured._rates, exchanged=ExchangedGradients(self.replicated))

    def run(self, make, on_step=lambda number: None):
        """Three epochs; a batch of three samples leaves the last of four ranks without one."""
        losses = []
        for number in range(EPOCHS * (WHOLE + 1)):
            on_step(number)
            first = BATCH * (number % (WHOLE + 1))
            length = min(BATCH, SAMPLES - first)
            start, stop = rank_bounds(first, first + length, self.ranks.rank, self.ranks.world)
            self.results.append(make([(X[start:stop], Y[start:stop])]))
            losses.append(float(self.results[-1].loss))
        report = self.captured.report
        numbers = {"replays": report.replays, "eager": report.eager, "reason": report.reason, "told": self.told}
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.ranks.barrier()
        return {"weights": weights, "losses": losses, **numbers}


def both_ways(**settings):
    """The guarded step alone, and the captured one around it."""
    eager = Bench(**settings)
    plain = eager.run(eager.captured.inner)
    captured = Bench(**settings)
    return plain, captured.run(captured.step)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("settings", [{}, {"clip_norm": 0.05}, {"tokens": True}], ids=str)
def test_replayed_steps_are_those_of_the_guarded_step(launch, world, settings):
    for plain, captured in launch(world, both_ways, **settings):
        # Eager: the first three, and those of the odd batch.
        assert captured["replays"] == EPOCHS * WHOLE - WARM_UP, captured["reason"]
        assert captured["replays"] + captured["eager"] == EPOCHS * (WHOLE + 1)
        assert captured["losses"] == pytest.approx(plain["losses"], rel=1e-6)
        assert difference(captured, plain) <= 1e-7


def test_a_rank_that_cannot_makes_all_eager_and_nobody_asks_any_more(launch):
    outcomes = launch(2, asked, refuses=1)
    for found, _ in outcomes:
        assert found["replays"] == 0 and len(found["told"]) == 1
    assert "another rank" in outcomes[0][0]["reason"] and "of its own" in outcomes[1][0]["reason"]
    assert {questions for _, questions in outcomes} == {2}  # at the trial, and when all hear what came of it


def asked(refuses):
    bench = Bench(refuses)
    questions, ask = [], bench.ranks.all_reduce_votes
    bench.ranks.all_reduce_votes = lambda votes, timeout: (questions.append(votes), ask(votes, timeout))[1]
    return bench.run(bench.step), len(questions)


def test_where_capturing_is_required_all_end_in_the_same_step(launch):
    outcomes = launch(2, ended, refuses=1)
    assert [step for step, _ in outcomes] == [WARM_UP] * 2
    assert "another rank" in outcomes[0][1] and "of its own" in outcomes[1][1]


def ended(refuses):
    bench, steps = Bench(refuses, required=True), []
    try:
        bench.run(bench.step, on_step=steps.append)
    except ConfigError as error:
        return steps[-1], str(error)
    return None


def test_a_model_that_exchanges_something_itself_is_refused(launch):
    for said in launch(2, exchanging):
        assert "exchanges something" in said


def gathering():
    def encode(model, batch):
        return model(batch[0]), batch[1]

    def loss(found, wanted):
        return (brim.gather(found) - brim.gather(wanted)).square().mean()

    plain, captured = both_ways(loss_fn=brim.TwoPass(encode, loss))
    return captured, are_the_same_bits(captured, plain)


@pytest.mark.slow
def test_a_loss_that_gathers_is_not_captured(launch):
    for found, is_same in launch(2, gathering):
        assert found["replays"] == 0 and "brim.gather" in found["reason"] and is_same


def test_what_it_exchanges_by_other_ways_is_counted_in_the_first_steps(launch):
    for found in launch(2, exchanging_otherwise):
        assert found["replays"] == 0 and "exchanges something" in found["reason"]


def exchanging_otherwise():
    bench = Bench()
    compute = bench.eager.compute

    def exchanges(batch):
        torch.distributed.group.WORLD.allreduce([torch.ones(1)]).wait()  # not a call of torch.distributed
        return compute(batch)

    bench.eager.compute = exchanges
    return bench.run(bench.step)


def exchanging():
    """Only one of the two: had it not been refused, it would wait for the other."""
    bench = Bench()
    bench.eager.compute = loss_of(Exchanging(bench.model), nn.MSELoss())
    said = "exchanges something"
    if this_rank() == 1:
        with pytest.raises(Refusal) as error:
            rates, exchanged = LearningRates(bench.eager.optimizer, CPU, False), ExchangedGradients(bench.replicated)
            StepGraph(bench.eager, [(X[:4], Y[:4])], rates, exchanged=exchanged).make_step()
        said = str(error.value)
    bench.ranks.barrier()  # exchanges work again
    return said


def test_what_changes_on_one_rank_is_computed_eagerly_by_all_until_it_has_captured_anew(launch):
    outcomes = launch(2, changed)
    plain = launch(2, unchanged)
    for found, expected in zip(outcomes, plain, strict=True):
        assert found["replays"] == outcomes[0]["replays"] < expected["replays"]
        assert difference(found, expected) <= 1e-7


def changed():
    bench = Bench()

    def on_step(number):
        if number == 8 and this_rank() == 1:
            bench.eager.optimizer.param_groups[0]["note"] = "a setting that computes the same"

    return bench.run(bench.step, on_step)


def unchanged():
    bench = Bench()
    return bench.run(bench.step)


class SomeSamples(nn.Module):
    """A part that only batches of two samples use: of three samples one rank has two, and the other one."""

    def __init__(self):
        super().__init__()
        self.net = net()
        self.rare = nn.Linear(6, 1)

    def forward(self, x):
        return self.net(x) + (self.rare(x) if len(x) == 2 else 0)


def test_a_shape_with_a_gradient_on_some_ranks_only_stays_eager_beside_others_that_are_replayed(launch):
    first, second = launch(2, some_samples)
    for found in (first, second):
        assert found["replays"] > EPOCHS * WHOLE
    assert are_the_same_bits(first, second)


def some_samples():
    """More epochs than a shape takes to be captured."""
    bench = Bench(model=SomeSamples())
    bench.run(bench.step)
    return bench.run(bench.step)


def test_a_rank_that_needs_the_memory_of_its_graphs_makes_all_eager(launch):
    plain = launch(2, unchanged)
    outcomes = launch(2, gives_way)
    for found, expected in zip(outcomes, plain, strict=True):
        assert 0 < found["replays"] == outcomes[0]["replays"] < expected["replays"]
        assert difference(found, expected) <= 1e-7
    assert "another rank" in outcomes[0]["reason"] and "needed for other steps" in outcomes[1]["reason"]


def gives_way():
    bench = Bench()

    def on_step(number):
        if number == 20 and this_rank() == 1:
            assert release_graphs(bench.captured)  # as its guard would ask it to

    return bench.run(bench.step, on_step)


@pytest.mark.slow
def test_a_rank_that_dies_while_others_replay_is_named(launch):
    first, second = launch.outcomes(2, dies)
    assert second.exit_code == 9
    assert first.error == "RanksLost" and "lost rank 1 in" in first.message


def dies():
    bench = Bench()
    all_reduce = ExchangedGradients.all_reduce

    def die(exchanged):
        if this_rank() == 1 and bench.captured.report.replays == 5:
            os._exit(9)
        all_reduce(exchanged)

    ExchangedGradients.all_reduce = die
    return bench.run(bench.step)


def test_optimizers_are_as_they_were_where_another_rank_cannot_capture(launch):
    assert launch(2, put_back) == [True, True]


def put_back():
    """The first rank has captured, with kernels of its own; the second has not, and both have to step alike."""
    bench = Bench(refuses=1)
    undone = []
    attempt = bench.captured._attempt

    def attempted(window, key):
        bench.captured._on_device = SimpleNamespace(undo=lambda: undone.append(bool(bench.results)))
        return attempt(window, key)

    bench.captured._attempt = attempted
    bench.run(bench.step)
    return undone == [True] and bench.captured._on_device is None


def test_a_wish_to_stop_on_one_rank_is_heard_by_all_in_a_replayed_step(launch):
    assert launch(2, heard) == [[6, 6], [6, 6]]


def heard():
    """The steps after which all know of a signal, and of a stop, to the second rank."""
    found = []
    for place in range(2):
        bench = Bench()
        requests = [False, False]
        bench.replicated.exchange.stop_requests = lambda requests=requests: tuple(requests)
        verdicts = []

        def on_step(number, bench=bench, verdicts=verdicts, requests=requests, place=place):
            last = bench.results[-1] if bench.results else None
            verdicts.append(last is not None and (last.signalled, last.stop_requested)[place])
            if number == 6 and this_rank() == 1:
                requests[place] = True

        bench.run(bench.step, on_step)
        assert bench.captured.report.replays > 0
        found.append(verdicts.index(True) - 1)
    return found
