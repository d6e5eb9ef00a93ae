"""Capture trap 15: what a step hands out is a static buffer that the next replay overwrites."""

import json

import pytest
import torch

import brim

pytestmark = pytest.mark.gpu


def test_losses_that_are_kept_stay_those_of_their_steps(twins):
    batches = [tuple(column[i : i + 32] for column in twins.rows()) for i in range(0, 640, 32)] * 3
    eager, captured = (twins.step_through(twins.mlp, batches, how) for how in ("off", "require"))
    assert captured.is_accounted_for
    assert captured.losses == pytest.approx(eager.losses, rel=1e-5)
    assert len(set(captured.losses)) > 50


def test_the_mean_in_the_log_is_that_of_the_steps_in_between(twins):
    def logged(found):
        lines = [json.loads(line) for line in (found.folder / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    eager, captured = twins(twins.mlp, twins.rows(), log_every=7)
    assert captured.is_accounted_for
    assert logged(captured) == pytest.approx(logged(eager), rel=1e-5)
    assert len(set(logged(captured))) > 5


def test_a_loss_changed_by_its_reader_changes_nothing(twins):
    class Careless(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            loss.mul_(0)

    def careless():
        return [Careless()]

    eager = twins.train(twins.mlp, twins.rows(), "off")
    captured = twins.train(twins.mlp, twins.rows(), "require", callbacks=careless)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-5


def test_batches_of_the_feed_are_not_overwritten_while_the_graph_reads_them(twins):
    """A source that fills one buffer again and again, faster than the device reads."""
    x, y = twins.rows(1280)

    class Reusing:
        def __len__(self):
            return 40

        def __iter__(self):
            buffers = torch.empty(32, 16).pin_memory(), torch.empty(32, 1).pin_memory()
            for start in range(0, 1280, 32):
                for buffer, column in zip(buffers, (x, y), strict=True):
                    buffer.copy_(column[start : start + 32])
                yield buffers

    eager, captured = twins(twins.mlp, Reusing)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-5
