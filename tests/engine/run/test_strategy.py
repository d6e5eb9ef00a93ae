"""Which strategy a run takes, by what was asked for and the ranks that were started."""

import pytest
import torch
from torch import nn

from brim.engine.components.settings import TrainerSettings
from brim.engine.distributed.ranks import Ranks
from brim.engine.run import strategy
from brim.engine.run.strategy import choose_strategy, must_shard
from brim.errors import ConfigError
from brim.record import Journal


class NoGroup(Ranks):
    """Ranks that were started, and do not meet."""

    def join(self, device):
        self.device = device

    def all_gather_object(self, value):
        return [value]


def chosen(ranks, model=None, **settings):
    return choose_strategy(TrainerSettings(device="cpu", **settings), model or nn.Linear(2, 1), ranks, Journal())


@pytest.mark.parametrize(
    ("asked", "world", "name"),
    [
        ("auto", 1, "single"), ("single", 1, "single"), ("ddp", 1, "single"), ("dp", 1, "single"),
        ("auto", 2, "ddp"), ("ddp", 2, "ddp"), ("fsdp", 2, "fsdp"),
    ],
)  # fmt: skip
def test_what_was_asked_for_with_the_ranks_that_are_there(asked, world, name):
    found = chosen(NoGroup(0, world), strategy=asked)
    assert (found.name, found.device, found.devices) == (name, torch.device("cpu"), [torch.device("cpu")])


def test_one_rank_of_one_is_a_group_where_that_is_asked_for_by_name():
    ranks = NoGroup(is_launched=True)
    assert chosen(ranks, strategy="ddp").name == "ddp" and not ranks.is_alone


@pytest.mark.parametrize(
    ("world", "settings", "said"),
    [
        (1, {"strategy": "fsdp"}, "none were started"),
        (2, {"strategy": "single"}, "2 ranks were started"),
        (2, {"strategy": "dp"}, "for one process"),
        (2, {"sliceable": False}, "use one rank"),
        (1, {"capture": "require"}, "needs a CUDA GPU"),
    ],
)
def test_what_cannot_be_is_refused(world, settings, said):
    with pytest.raises(ConfigError, match=said):
        chosen(NoGroup(0, world), **settings)


def test_a_model_that_torch_has_wrapped_is_refused_on_ranks():
    with pytest.raises(ConfigError, match=r"hand over model\.module"):
        chosen(NoGroup(0, 2), nn.DataParallel(nn.Linear(2, 1)))


def test_a_replica_that_cannot_fit_is_sharded(monkeypatch):
    model, gpu = nn.Linear(1024, 1024), torch.device("cuda")
    monkeypatch.setattr(strategy, "usable_memory", lambda device: 1 << 20)
    assert "sharded over the ranks" in must_shard("auto", model, "AdamW", gpu)
    assert must_shard("ddp", model, "AdamW", gpu) == must_shard("auto", model, "AdamW", torch.device("cpu")) == ""
    monkeypatch.setattr(strategy, "usable_memory", lambda device: 1 << 30)
    assert must_shard("auto", model, "AdamW", gpu) == ""


def test_ranks_that_were_asked_for_and_not_started_are_told(capsys):
    chosen(NoGroup(), strategy="ddp")
    assert "no ranks were started: one process trains alone" in capsys.readouterr().err
    chosen(NoGroup(), strategy="auto")
    assert "ranks" not in capsys.readouterr().err


def test_ranks_shard_together_where_a_replica_fits_on_some_of_them_alone(monkeypatch):
    class OneIsFull(NoGroup):
        def all_gather_object(self, value):
            return [value, "another job takes its memory"]

    monkeypatch.setattr(strategy, "must_shard", lambda *arguments: "")
    assert chosen(OneIsFull(0, 2)).name == "fsdp"
