"""The captured evaluation, with a stand-in for the graph: what is asked when, and what is refused."""

import pytest
import torch
from torch import nn

from brim.engine.captured import captured_evaluation as room
from brim.engine.captured.captured_evaluation import WARM_UP, CapturedLoss
from brim.engine.captured.graph_cache import MOST_GRAPHS, release_graphs
from brim.engine.captured.proof.rounding import Rounding
from brim.engine.captured.report import Refusal
from brim.engine.components.loss import Loss, as_sum
from brim.engine.components.precision import Precision
from brim.engine.numbers.observed_pass import ObservedPass

CPU = torch.device("cpu")


class Replayed:
    """A graph that computes anew, with the weights as they are, and refuses what it is told to."""

    error: Exception | None = None
    made = 0

    def __init__(self, compute, batch, is_compiled):
        self.compute, self.batch, self.replays = compute, batch, 0
        Replayed.made += 1

    likeness = "its sums are equal to the bit"

    def prove(self, batches, rounding, pool, stream, required):
        assert len(batches) == 2
        if Replayed.error is not None:
            raise Replayed.error
        return 3.0

    def replay(self, tensors):
        self.replays += 1
        return self.compute(tuple(tensors))


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(room, "LossGraph", Replayed)
    monkeypatch.setattr(room, "capture_stream", lambda device: None)
    monkeypatch.setattr(room, "check_window", lambda window: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(Replayed, "error", None)
    monkeypatch.setattr(Replayed, "made", 0)
    return Bench


class Bench:
    def __init__(self, model=None, compute=None, **settings):
        self.model = nn.Linear(3, 1) if model is None else model
        self.model.eval()
        self.said = []
        own = (lambda batch: self.model(batch[0]).square().mean()) if compute is None else compute
        self.plain = lambda batch: ObservedPass(as_sum(own(batch), len(batch[0])), None, [])
        self.now = 0.0
        self.loss = CapturedLoss(
            self.plain, self.model, None, Precision("32", CPU), lambda sentence, **facts: self.said.append(sentence),
            clock=lambda: self.now, **settings,
        )  # fmt: skip

    def __call__(self, *lengths):
        """Losses of batches of these lengths, each compared with the plain way."""
        with torch.no_grad():
            for length in lengths:
                batch = (torch.randn(length, 3),)
                found = self.loss(batch).result
                assert isinstance(found, Loss)
                assert torch.equal(found.total, self.plain(batch).result.total) and found.count == length
        return self


def test_a_shape_that_comes_again_is_captured_and_replayed(bench):
    made = bench()(*[4] * (WARM_UP + 5))
    assert made.loss.report.replays == 5 and Replayed.made == 1
    assert made.said == ["evaluation is captured as a CUDA graph: 3.0 times as fast; its sums are equal to the bit"]


def test_the_odd_last_batch_stays_eager(bench):
    made = bench()(4, 4, 4, 4, 3)
    assert made.loss.report.replays == 2 and len(made.loss.graphs) == 1


def test_a_few_shapes_have_graphs_and_no_more(bench):
    made = bench()
    for length in range(1, MOST_GRAPHS + 3):
        made(*[length] * (WARM_UP + 2))
    assert len(made.loss.graphs) == MOST_GRAPHS


def test_weights_that_training_moved_are_no_reason_to_capture_again(bench):
    made = bench()(4, 4, 4)
    with torch.no_grad():
        made.model.weight.mul_(2)
    made.loss.begin()
    made(4)
    assert Replayed.made == 1 and made.loss.report.replays == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "weight", nn.Parameter(torch.zeros(1, 3))),
        lambda model: setattr(model, "scale", 2.0),
        lambda model: model.train(),
        lambda model: model.register_forward_hook(lambda *_: None),
    ],
    ids=["other weights", "an attribute", "training mode", "a hook"],
)
def test_a_model_that_changed_is_captured_anew(bench, change):
    made = bench()(4, 4, 4)
    change(made.model)
    made.loss.begin()
    assert not made.loss.graphs and not made.loss.report.reason
    made(4)
    assert made.loss.report.replays == 1


class Counting(nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Remembering(nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return super().forward(x)


class Drawing(nn.Linear):
    def forward(self, x):
        torch.rand(())
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: Counting(3, 1), "calls changes with every batch"),
        (Remembering, "changes its buffers"),
        (lambda: Drawing(3, 1), "draws random numbers"),
    ],
)
def test_what_more_than_a_result_comes_of_is_refused_before_it_is_tried(bench, model, why):
    made = bench(model())(*[4] * 6)
    assert why in made.loss.report.reason and Replayed.made == 0
    assert made.said == [f"evaluation is eager: {made.loss.report.reason}"]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Refusal("the GPU is the limit"), "the GPU is the limit"),
        (torch.OutOfMemoryError("out of memory"), "no memory"),
        (RuntimeError("called a synchronizing CUDA operation"), "has to wait for a number"),
    ],
)
def test_where_capturing_fails_it_goes_on_eagerly_and_says_why(bench, monkeypatch, error, why):
    repaired = []
    monkeypatch.setattr(room, "repair_generator", repaired.append)
    monkeypatch.setattr(Replayed, "error", error)
    made = bench()(*[4] * 6)
    assert why in made.loss.report.reason and not made.loss.graphs and Replayed.made == 1
    assert repaired == [CPU]  # which a capture that broke off leaves unusable


def test_one_shape_that_fails_leaves_the_others_their_graphs(bench, monkeypatch):
    made = bench()(4, 4, 4)
    monkeypatch.setattr(Replayed, "error", Refusal("no"))
    made(*[5] * (WARM_UP + 3), 4)
    assert not made.loss.report.reason and made.loss.report.replays == 2
    assert Replayed.made == 2  # it is not tried again with every batch


def test_memory_that_is_needed_elsewhere_is_given_back_for_good(bench):
    made = bench()
    assert not release_graphs(made.loss) and not made.loss.report.reason
    made(4, 4, 4)
    assert release_graphs(made.loss) and not made.loss.graphs
    made(4, 4, 4, 4)
    assert made.loss.report.replays == 1 and "needed" in made.loss.report.reason


def test_a_result_may_differ_by_rounding_and_no_more():
    rounding = Rounding("fp32", 100)
    assert room.compare_totals(1.0, 1.0, rounding) == 0.0
    assert room.compare_totals(float("nan"), float("nan"), rounding) == 0.0
    assert room.compare_totals(2.0, 2.0 + rounding.share, rounding) == pytest.approx(rounding.share / 2)
    for other in (1.001, float("nan"), float("inf")):
        for pair in ((1.0, other), (other, 1.0)):
            with pytest.raises(Refusal, match="another result"):
                room.compare_totals(*pair, rounding)


class Stored:
    """The graph of a loss that computes on the CPU, into the memory of the first time."""

    def __init__(self, loss, compute):
        self.loss, self.compute = loss, compute

    def replay(self):
        found = self.compute(self.loss.inputs.window()[0])
        self.loss._found.result.total.copy_(found.result.total)
        if found.outputs is not None:
            self.loss._found.outputs.copy_(found.outputs)


def proof_of(compute, by_graph, monkeypatch):
    """Compare the sums of two batches, eagerly and by what a graph would compute."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    batches = [(torch.randn(4, 3, generator=torch.Generator().manual_seed(n)),) for n in range(2)]
    loss = room.LossGraph(compute, batches[0])
    outputs = compute(batches[0]).outputs
    loss._found = ObservedPass(Loss(torch.zeros(()), 4), None if outputs is None else torch.empty_like(outputs), [])
    loss.graph = Stored(loss, by_graph)
    for batch in batches:
        loss._compare(batch, Rounding("fp32", 16))
    return loss


def summed(factor=1.0):
    return lambda batch: ObservedPass(Loss(batch[0].square().sum() * factor, len(batch[0])), None, [])


def with_outputs(factor=1.0):
    return lambda batch: ObservedPass(Loss(batch[0].square().sum(), len(batch[0])), batch[0] * factor, [])


def test_sums_of_several_batches_are_compared(monkeypatch):
    assert proof_of(summed(), summed(), monkeypatch).likeness == "its sums are equal to the bit"
    told = proof_of(summed(), summed(1 + 1e-6), monkeypatch).likeness
    assert told.startswith("its sums are within 1e-06 (fp32 rounding allows")


def test_an_evaluation_that_reads_an_old_batch_is_refused(monkeypatch):
    old = torch.randn(4, 3)
    with pytest.raises(Refusal, match="another result"):
        proof_of(summed(), lambda batch: summed()((old,)), monkeypatch)


def test_an_evaluation_that_writes_no_sum_is_refused(monkeypatch):
    monkeypatch.setattr(Stored, "replay", lambda self: None)
    with pytest.raises(Refusal, match="nan instead of"):
        proof_of(summed(), summed(), monkeypatch)


def test_an_evaluation_that_counts_otherwise_is_refused(monkeypatch):
    with pytest.raises(Refusal, match="counted 4"):
        proof_of(lambda batch: ObservedPass(Loss(batch[0].sum(), 3), None, []), summed(), monkeypatch)


FACTOR = 1.0


class Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * FACTOR


class CountsInAGlobal(nn.Linear):
    def forward(self, x):
        global FACTOR
        FACTOR += 0.0001
        return super().forward(x) * FACTOR


def test_a_global_that_evaluations_change_is_refused_before_it_is_tried(bench, monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    made = bench(CountsInAGlobal(3, 1))
    with torch.no_grad():
        for _ in range(4):
            made.loss((torch.zeros(4, 3),))
    assert "FACTOR changes with every batch" in made.loss.report.reason and Replayed.made == 0


def test_a_global_that_changed_between_evaluations_is_captured_anew(bench, monkeypatch):
    made = bench(Scaled(3, 1))(4, 4, 4)
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    made.loss.begin()
    assert not made.loss.graphs and not made.loss.report.reason
    made(4)


def test_outputs_are_compared_too(monkeypatch):
    assert proof_of(with_outputs(), with_outputs(), monkeypatch).likeness == "its sums are equal to the bit"
    told = proof_of(with_outputs(), with_outputs(1 + 1e-6), monkeypatch).likeness
    assert told.startswith("its sums and outputs are within 9e-07 (fp32 rounding allows")
    with pytest.raises(Refusal, match="other outputs"):
        proof_of(with_outputs(), with_outputs(1.001), monkeypatch)


def test_outputs_that_a_replay_does_not_write_are_seen(monkeypatch):
    def forgets(batch):
        return ObservedPass(with_outputs()(batch).result, None, [])

    with pytest.raises(Refusal, match="other outputs"):
        proof_of(with_outputs(), forgets, monkeypatch)


def test_replays_give_outputs_of_their_own(monkeypatch):
    loss = proof_of(with_outputs(), with_outputs(), monkeypatch)
    batches = [torch.randn(4, 3), torch.randn(4, 3)]
    found = [loss.replay([batch]).outputs for batch in batches]
    assert torch.equal(found[0], batches[0]) and torch.equal(found[1], batches[1])


def test_what_is_logged_is_refused(monkeypatch):
    loss = room.LossGraph(summed(), (torch.randn(4, 3),))
    loss._found = ObservedPass(Loss(torch.zeros(()), 4), None, [("kl", torch.zeros(()))])
    with pytest.raises(Refusal, match="logs numbers"):
        loss._check_found()


def test_an_evaluation_made_once_is_captured_only_after_it_has_lasted_a_while(bench):
    made = bench(after_seconds=0.5)(*[4] * 8)
    assert Replayed.made == 0
    made.now = 0.6
    made(4, 4)
    assert Replayed.made == 1 and made.loss.report.replays == 2


def test_what_is_required_does_not_wait(bench):
    assert bench(after_seconds=0.5, required=True)(*[4] * 4).loss.report.replays == 2
