"""Modes of modules over ranks: what is in eval mode before training is so on every replica and in the sharded copy."""

import pytest
import torch
from rank_training import ROUNDING, X, Y, difference, net, train
from torch import nn

import brim


class SwitchesOff(brim.Callback):
    """Dropout that trains for no step at all: it is on when the run begins."""

    def on_fit_start(self, trainer):
        trainer.model[3].eval()


def train_with_frozen_parts(strategy="auto", norm=True):
    """Two dropouts that would change every number: one in eval mode from the start, one switched by a callback."""
    model = net(nn.Dropout(0.5).eval(), nn.Dropout(0.5), *([nn.BatchNorm1d(16).eval()] if norm else []))
    held_out = brim.Loader((X[:50], Y[:50]), 24)
    found = train(
        model=model, strategy=strategy, callbacks=[SwitchesOff()], max_steps=15, eval_data=held_out,
        eval_every="3 steps",
    )  # fmt: skip
    return found, [module.training for module in model]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])  # fsdp takes no BatchNorm
def test_what_is_in_eval_mode_stays_there_on_all_ranks(launch, strategy):
    norm = strategy == "ddp"
    (expected, modes), *_ = launch(1, train_with_frozen_parts, norm=norm)
    assert modes[2:4] == [False, True]
    for found, own in launch(2, train_with_frozen_parts, strategy=strategy, norm=norm):
        assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4, abs=1e-6)
        assert difference(found, expected) <= ROUNDING
        assert own == modes
    if norm:
        assert torch.equal(expected["weights"]["4.running_mean"], torch.zeros(16))


class SwitchesInTheMiddle(brim.Callback):
    def __init__(self, stop):
        self.stop = stop

    def on_step_end(self, trainer, step, loss):
        if step == 4:
            trainer.model[2].eval()
        if step == self.stop:
            trainer.stop("for a while")


def train_in_parts(strategy, folder, stops):
    for number, stop in enumerate(stops):
        found = train(
            model=net(nn.Dropout(0.5)), strategy=strategy, callbacks=[SwitchesInTheMiddle(stop)], max_steps=9,
            run_dir=folder, resume=folder if number else None,
        )  # fmt: skip
    return found


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_what_a_callback_has_switched_is_so_when_ranks_resume(launch, tmp_path, strategy):
    whole = launch(2, train_in_parts, strategy=strategy, folder=str(tmp_path / "whole"), stops=[None])
    parts = launch(2, train_in_parts, strategy=strategy, folder=str(tmp_path / "parts"), stops=[5, None])
    for found, expected in zip(parts, whole, strict=True):
        assert difference(found, expected) == 0
