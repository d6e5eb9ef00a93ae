"""Ranks ask what a loss counts at the same step, whatever each of them has of it."""

import torch
from torch import nn

from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.splitting.splitting import Splitting
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.splitting_check import SplittingCheck

FULL = Precision("32", torch.device("cpu"))
X, Y = torch.randn(8, 4), torch.randn(8, 1)


class Pair:
    """Two ranks; the other one has the same batches."""

    world, is_first = 2, True

    def __init__(self):
        self.exchanges = 0

    def all_gather_object(self, value):
        self.exchanges += 1
        return [value, value]


def asking():
    model, told, ranks = nn.Linear(4, 1), [], Pair()
    loss = loss_of(model, nn.MSELoss())
    step = EagerStep(loss, torch.optim.SGD(model.parameters(), lr=0.1), FULL)
    return SplittingCheck(Splitting(loss, model, FULL), step, ranks, told.append), ranks


def test_a_rank_without_a_sample_asks_with_the_others_also_where_an_earlier_run_has_found_a_micro_batch():
    check, ranks = asking()
    check.tell_differences()  # as a resumed run does, which begins with micro-batches
    check.ask([(X[:0], Y[:0])], 0)
    assert ranks.exchanges == 1


def test_ranks_exchange_their_answers_once():
    check, ranks = asking()
    for steps_made, batch in enumerate([(X, Y), (X[:0], Y[:0]), (X, Y, Y), (X, Y)]):
        check.ask([batch], steps_made)
    assert ranks.exchanges == 1
