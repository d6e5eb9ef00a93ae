"""Whole trainings on padded batches beside the same on batches as they come. Graphs compute on the CPU."""

import pytest
import torch
from graph_on_cpu import on_cpu
from helpers.padded_batches import tokens
from torch import nn

from brim.engine.captured.captured_step import WARM_UP, CapturedStep
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.padded.padding import LOOKED_AT, Padding
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step.eager_step import EagerStep

LENGTHS = (5, 9, 14, 7, 12, 20)


class Reader(nn.Module):
    """Attention under a mask, and the mean over what is no padding; ``sees``: what it does wrong, or else."""

    def __init__(self, sees="", dropout=0.0):
        super().__init__()
        self.sees, self.dropout = sees, dropout
        self.words, self.places = nn.Embedding(50, 8), nn.Embedding(20, 8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.bool()
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        x = nn.functional.dropout(x, self.dropout, self.training)
        x = x + self.attention(x, x, x, key_padding_mask=None if self.sees == "attention" else ~mask)[0]
        if self.sees == "norm":
            x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        if self.sees == "buffer":
            self.seen += input_ids.shape[1]
        if self.sees == "mean":
            return self.head(x.mean(1))
        return self.head((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def loss_fn(model, batch):
    return (model(batch["input_ids"], batch["attention_mask"]) - 1).square().mean()


class Bench:
    def __init__(self, captures=True, graph_type=StepGraph, loss_fn=loss_fn, **model):
        torch.manual_seed(0)
        self.model, self.told = Reader(**model), []
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.5)  # Adam makes steps of rounding
        self.eager = EagerStep(loss_of(self.model, loss_fn), optimizer, Precision("32", torch.device("cpu")))
        self.eager.reads_loss = False
        self.padding = Padding()
        self.step = self.eager
        if captures:
            self.step = CapturedStep(
                self.eager, self.eager, self.model, loss_fn, tell=lambda line, **facts: self.told.append(line),
                padding=self.padding,
            )  # fmt: skip
            self.step.graph_type = on_cpu(graph_type)

    def run(self, steps=LOOKED_AT + 36):
        torch.manual_seed(1)
        self.losses = [
            float(self.step([tokens(LENGTHS[number % len(LENGTHS)], seed=number)]).loss) for number in range(steps)
        ]
        return self


pytestmark = pytest.mark.usefixtures("on_the_cpu")


def weights(bench):
    return torch.cat([tensor.flatten() for tensor in bench.model.state_dict().values()])


def apart(one, other):
    return float((weights(one) - weights(other)).norm() / weights(other).norm())


def test_a_few_graphs_serve_all_lengths_and_the_training_is_the_same():
    bench, plain = Bench().run(), Bench(captures=False).run()
    report = bench.step.report
    assert report.captured, bench.told
    assert 2 <= report.graphs <= len(bench.padding.lengths) < len(set(LENGTHS))
    assert report.replays == len(bench.losses) - report.eager > 12
    assert any("captured steps pad batches to" in line for line in bench.told)
    assert apart(bench, plain) <= 1e-5
    assert bench.losses == pytest.approx(plain.losses, rel=1e-4)


@pytest.mark.parametrize("sees", ["mean", "attention", "norm", "buffer"])
def test_a_model_that_sees_padding_is_refused_and_trains_as_in_a_plain_loop(sees):
    bench, plain = Bench(sees=sees).run(), Bench(captures=False, sees=sees).run()
    assert not bench.step.report.captured
    assert "a padded batch" in bench.step.report.reason
    assert torch.equal(weights(bench), weights(plain))


def test_dropout_draws_other_numbers_and_is_dropped_no_more_and_no_less():
    bench, plain = Bench(dropout=0.2).run(), Bench(captures=False, dropout=0.2).run()
    assert bench.step.report.captured, bench.told
    assert 0 < apart(bench, plain) < 0.5
    assert bench.model.attention.dropout == 0.2


def test_a_graph_that_computes_something_else_is_found_beside_padding(mutations):
    bench, plain = Bench(graph_type=mutations.StaleInput).run(), Bench(captures=False).run()
    assert not bench.step.report.captured and bench.step.report.reason
    assert torch.equal(weights(bench), weights(plain))


def test_where_nothing_can_be_padded_shapes_are_captured_as_they_come():
    bench = Bench()
    for number in range(LOOKED_AT + WARM_UP + 2):
        bench.step([tokens(9, seed=number)])
    assert bench.step.report.captured and bench.step.report.graphs == 1
    assert "batches are not padded to other lengths: all batches have one shape" in bench.told


def test_numbers_that_a_loss_logs_must_be_the_same_too():
    def logs(model, batch):
        return {"loss": loss_fn(model, batch), "positions": torch.tensor(float(batch["input_ids"].shape[1]))}

    assert "logs another 'positions'" in Bench(loss_fn=logs).run().step.report.reason
