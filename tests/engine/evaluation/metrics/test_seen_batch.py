"""Which part of a batch a metric compares with: told by its name, and never guessed."""

import pytest
import torch
from torch import nn

import brim
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.errors import ConfigError

A, B = torch.zeros(4), torch.ones(4)


class TakesLabels(nn.Module):
    def forward(self, input_ids, labels=None):
        return input_ids


def target(batch, model=None, loss_fn=print):
    return SeenBatch(model or nn.Identity(), loss_fn, A, batch, 4).target


@pytest.mark.parametrize(
    "batch", [(A, B), {"x": A, "labels": B}, {"x": A, "y": B}, {"x": A, "Y_labels": B}, {"labels": B, "label_mask": A}]
)
def test_the_target_is_what_is_called_so(batch):
    assert target(batch) is B


@pytest.mark.parametrize(
    "batch", [{"y": A, "labels": B}, {"target": A, "label": B}, {"x": A, "start_labels": A, "end_labels": B}]
)
def test_two_that_are_called_so_are_not_chosen_between(batch):
    with pytest.raises(ConfigError, match=r"is not known, '.*' or '.*'; pass a function"):
        target(batch)


def test_a_model_that_takes_labels_itself_has_said_which():
    assert target({"y": A, "labels": B}, TakesLabels(), None) is B
    with pytest.raises(ConfigError, match="'labels' or 'y'"):
        target({"y": A, "labels": B}, TakesLabels())


def test_a_run_says_so_before_anything_is_counted(tmp_path):
    data = [{"x": torch.randn(4, 2), "y": torch.zeros(4, 1), "labels": torch.ones(4, 1)}]
    with pytest.raises(ConfigError, match="'labels' or 'y'"):
        brim.Trainer(
            nn.Linear(2, 1), data, data, device="cpu", metrics="mse", run_dir=tmp_path / "run",
            loss_fn=lambda model, batch: (model(batch["x"]) - batch["y"]).square().mean(),
        ).fit()  # fmt: skip
