"""Which step a run makes. What these steps compute is tested where they are."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from brim.engine.captured import CapturedOverRanks, CapturedStep
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.components.settings import TrainerSettings
from brim.engine.distributed.ranks import Ranks
from brim.engine.numbers.pass_notes import PassNotes
from brim.engine.run import step_choice
from brim.engine.run.step_choice import NOT_CAPTURABLE, OFF, StepChoice
from brim.engine.run.training_setup import TrainingSetup
from brim.engine.step.guard import GuardedStep
from brim.engine.step.planned_step import PlannedStep
from brim.errors import ConfigError

FINDINGS = SimpleNamespace(
    progress=None, shortage=None, planned=None, threads=None, place=SimpleNamespace(feed=None),
    notes=SimpleNamespace(capture=None, loss_verdict=None, search=None),
)  # fmt: skip


def choice(device="cpu", strategy="single", model=None, journal=None, ranks=None, **settings):
    model = model or nn.Linear(2, 1)
    compute, precision = loss_of(model, nn.MSELoss()), Precision("32", torch.device("cpu"))
    ranks = ranks or Ranks()
    setup = TrainingSetup(
        model=model, loss_fn=None, compute=compute, notes=PassNotes(), train_data=None, device=torch.device(device),
        devices=[torch.device(device)], precision=precision, ranks=ranks, strategy=strategy,
        settings=TrainerSettings(**{"threads": 1, **settings}), journal=journal,
    )  # fmt: skip
    return StepChoice(setup)


def in_a_group(world=2):
    ranks = Ranks(0, world)
    ranks.group = object()
    return ranks


def state(model, micro_batch=None, threads=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return SimpleNamespace(optimizer=optimizer, progress=SimpleNamespace(micro_batch=micro_batch, threads=threads))


def uncaptured(chosen, **progress):
    return chosen.uncaptured(state(chosen.setup.model, **progress), FINDINGS, None)


@pytest.mark.parametrize(
    ("device", "strategy", "ranks", "capture", "may", "why_not"),
    [
        ("cuda", "single", None, "auto", True, OFF),
        ("cuda", "single", None, "off", False, OFF),
        ("cpu", "single", None, "auto", False, OFF),
        ("cuda", "ddp", in_a_group(), "auto", True, OFF),
        ("cuda", "ddp", Ranks(0, 2), "auto", False, NOT_CAPTURABLE),  # the program has formed the group itself
        ("cuda", "fsdp", in_a_group(), "auto", False, NOT_CAPTURABLE),
        ("cuda", "dp", None, "auto", False, NOT_CAPTURABLE),
    ],
)
def test_what_may_be_captured(device, strategy, ranks, capture, may, why_not):
    chosen = choice(device, strategy, ranks=ranks, capture=capture)
    assert chosen.may_capture is may and chosen.why_not_captured == why_not


@pytest.mark.parametrize(
    ("strategy", "ranks", "kind"), [("single", None, CapturedStep), ("ddp", in_a_group(), CapturedOverRanks)]
)
def test_ranks_capture_in_their_own_way(strategy, ranks, kind, monkeypatch):
    monkeypatch.setattr(step_choice, "CudaEvents", lambda device: None)
    chosen = choice("cuda", strategy, ranks=ranks)
    step, guard = uncaptured(chosen)
    called, made = chosen.captured(step, guard, FINDINGS, lr_moves=True, has_onlookers=False)
    assert type(called) is kind and made.inner is step and made.eager is guard.step
    assert made.rates_move and made.ring == 51
    assert chosen.captured(step, guard, FINDINGS, lr_moves=False, has_onlookers=True)[1].ring is None


def test_what_is_required_and_cannot_be_is_refused_and_what_need_not_be_is_left():
    for strategy in ("dp", "fsdp"):
        with pytest.raises(ConfigError, match="capture='require', and steps of copies"):
            choice("cuda", strategy, capture="require").captured(None, None, FINDINGS, False, False)
    assert choice("cpu").captured(None, None, FINDINGS, False, False) == (None, None)


@pytest.mark.parametrize(
    ("device", "strategy", "micro_batch", "is_planned"),
    [("cuda", "single", "auto", True), ("cuda", "ddp", "auto", True), ("cuda", "dp", "auto", False),
     ("cuda", "single", 8, False), ("cpu", "single", "auto", False)],
)  # fmt: skip
def test_a_gpu_plans_its_first_batch_unless_the_size_of_slices_is_given(device, strategy, micro_batch, is_planned):
    step, guard = uncaptured(choice(device, strategy, micro_batch=micro_batch))
    assert isinstance(step, PlannedStep) is is_planned
    assert isinstance(guard, GuardedStep) and guard.micro_batch == (8 if micro_batch == 8 else None)


def test_the_size_that_an_earlier_run_found_counts_unless_one_is_given():
    assert uncaptured(choice(), micro_batch=4)[1].micro_batch == 4
    assert uncaptured(choice(micro_batch=8), micro_batch=4)[1].micro_batch == 8


def test_only_several_ranks_meet():
    assert uncaptured(choice())[1].replicated is None
    together = Ranks(0, 2)
    assert uncaptured(choice(strategy="ddp", ranks=together))[1].replicated.ranks is together


@pytest.mark.parametrize(
    ("settings", "found", "ranks", "threads"),
    [
        ({"threads": 3}, None, None, 3),
        ({"threads": "auto"}, None, None, None),
        ({"threads": "auto"}, 2, None, 2),
        ({"threads": "auto", "deterministic": True}, None, None, 5),
        ({"threads": "auto"}, None, Ranks(0, 2, 0, 2), 4),
        ({"threads": 1}, None, Ranks(0, 2, 0, 2), 1),
        ({"threads": "adaptive"}, None, None, None),
        ({"threads": "adaptive"}, 2, None, 2),
        ({"threads": "adaptive", "deterministic": True}, None, None, 5),
        ({"threads": "adaptive"}, None, Ranks(0, 2, 0, 2), 4),
    ],
)
def test_threads_are_those_that_were_asked_for_or_found_or_are_tried(monkeypatch, settings, found, ranks, threads):
    monkeypatch.setattr(step_choice, "usable_cores", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    tried = []
    monkeypatch.setattr(
        step_choice, "with_threads", lambda step, number, tell, adaptive: tried.append((number, adaptive))
    )
    uncaptured(choice(ranks=ranks, **settings), threads=found)
    may_change = settings["threads"] == "adaptive" and ranks is None and "deterministic" not in settings
    assert tried == [(threads, may_change)]


def test_compiling_wraps_what_is_computed():
    found = []
    for wish in (False, True, "eager", "auto"):
        chosen = choice(compile=wish)
        uncaptured(chosen)
        found.append(getattr(chosen.setup.compute.run, "compiler", None))
    assert [compiler and compiler.backend for compiler in found] == [None, "inductor", "eager", None]
