import pytest
import torch
import torchmetrics
from torch import Tensor

from brim.engine.evaluation.metrics.state_before import StateBefore, copy_state
from brim.errors import CannotFit


class Sums(torchmetrics.Metric):
    """One sum is replaced, the other written into; a list is appended to."""

    replaced: Tensor
    written: Tensor
    listed: list

    def __init__(self):
        super().__init__()
        self.add_state("replaced", torch.zeros(()))
        self.add_state("written", torch.zeros(()))
        self.add_state("listed", [])

    def update(self, value):
        self.replaced = self.replaced + value
        self.written += value
        self.listed.append(value)

    def compute(self):
        return self.replaced + self.written


def values(metric):
    return float(metric.replaced), float(metric.written), [float(one) for one in metric.listed], metric._update_count


@pytest.mark.parametrize("replaced", [frozenset(), frozenset(["replaced"])])
def test_what_was_there_before_is_put_back(replaced):
    metric = Sums()
    metric.update(torch.tensor(2.0))
    before = StateBefore(metric, replaced)
    metric.update(torch.tensor(5.0))
    before.put_back()
    assert values(metric) == (2, 2, [2], 1)


def test_only_states_that_an_update_replaces_are_said_to_be():
    metric = Sums()
    before = StateBefore(metric)
    metric.update(torch.tensor(5.0))
    assert before.replaced_by_update() == {"replaced"}
    with torch.inference_mode():  # where no versions are counted
        metric.reset()
        before = StateBefore(metric)
        metric.update(torch.tensor(5.0))
        assert not before.replaced_by_update()


def test_a_state_that_was_replaced_so_far_is_not_copied():
    metric = Sums()
    before = StateBefore(metric, frozenset(["replaced"]))
    assert before.kept["replaced"] is metric.replaced and before.kept["written"] is not metric.written


def test_a_state_that_was_written_into_against_expectation_is_an_error_and_not_kept_in_silence():
    metric = Sums()
    before = StateBefore(metric, frozenset(["written"]))
    metric.update(torch.tensor(5.0))
    with pytest.raises(CannotFit, match="Sums failed while it wrote into its state 'written'"):
        before.put_back()


def test_a_state_is_handed_over_whole_and_lists_stay_apart():
    giver, taker = Sums(), Sums()
    giver.update(torch.tensor(2.0))
    copy_state(giver, taker)
    assert values(taker) == values(giver) and float(taker.compute()) == 4
    giver.update(torch.tensor(2.0))
    assert len(taker.listed) == 1
