import pytest
import torch
from torch import nn

from brim.engine.components.loss import Loss, loss_of
from brim.engine.numbers.pass_notes import PassNotes, kept, weighted
from brim.errors import ConfigError

CPU = torch.device("cpu")


def test_what_nobody_takes_is_gone():
    notes = PassNotes()
    notes.log("kl", 1.0)
    with notes.taking() as taken:
        pass
    assert taken.numbers == []


def test_a_pass_within_another_has_its_own():
    notes = PassNotes()
    with notes.taking() as outer:
        notes.log("a", 1.0)
        with notes.taking() as inner:
            notes.log("b", 2.0)
        notes.log("c", 3.0)
    assert ([name for name, _ in outer.numbers], [name for name, _ in inner.numbers]) == (["a", "c"], ["b"])


@pytest.mark.parametrize("form", ["function", "method"])
def test_what_a_loss_returns_beside_the_loss_is_taken(form):
    returned = {"loss": torch.tensor(1.0), "kl": torch.tensor(0.5), "outputs": "those", "many": torch.ones(3), "n": 2}
    model, notes = nn.Identity(), PassNotes()
    if form == "method":
        model.calculate_loss = lambda batch: returned
    compute = loss_of(model, None if form == "method" else lambda model, batch: returned, notes)
    with notes.taking() as taken:
        assert compute(torch.ones(2)) is returned["loss"]
    assert taken.numbers == [("kl", torch.tensor(0.5)), ("n", 2)]
    assert taken.has_outputs and taken.outputs == "those"


def test_a_number_is_kept_without_its_graph():
    parameter = nn.Parameter(torch.ones(1))
    found = kept("a", parameter * 2)
    assert not found.requires_grad and found.item() == 2
    assert not kept("b", Loss(parameter.sum(), 2)).total.requires_grad


def test_what_it_was_a_part_of_may_change_afterwards():
    running = torch.zeros(())
    found = kept("mean", running)
    running += 1
    assert found == 0


@pytest.mark.parametrize(
    "name", ["loss", "lr", "step", "eval/loss", "feed/wait_ms", "share/compute", "memory_reserved"]
)
def test_names_of_brims_own_numbers_are_refused(name):
    with pytest.raises(ConfigError, match="another name"):
        kept(name, 1.0)


@pytest.mark.parametrize("name", ["", " "])
def test_a_number_without_a_name_is_refused(name):
    with pytest.raises(ConfigError, match="has no name to write the number under"):
        kept(name, 1.0)


@pytest.mark.parametrize("value", [torch.ones(2), "0.5", None, [1.0]])
def test_what_is_not_one_number_is_refused(value):
    with pytest.raises(ConfigError, match=r"log\('kl', ...\) takes a number"):
        kept("kl", value)


def test_a_mean_is_weighted_by_what_it_is_a_mean_over_and_a_sum_by_itself():
    assert weighted(torch.tensor(0.5), 4, CPU) == (torch.tensor(2.0), 4)
    assert weighted(Loss(torch.tensor(3.0), 7), 4, CPU) == (torch.tensor(3.0), 7)
