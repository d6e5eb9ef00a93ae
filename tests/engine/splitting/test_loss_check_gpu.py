"""What a loss counts is found out without an index out of bounds, which would end the process."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import brim

pytestmark = pytest.mark.gpu


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, ids):
        return self.head(self.table(ids))


def next_token(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def shifted_labels(model, batch):
    """The decoder's input is made of the labels."""
    labels = batch["labels"]
    given = labels.new_zeros(labels.shape)
    given[:, 1:] = labels[:, :-1]
    return F.cross_entropy(model(given).flatten(0, 1), labels.flatten())


@pytest.mark.parametrize("form", ["tokens", "labels"])
def test_tokens_that_are_labels_too_are_left_in_bounds(form, tmp_path):
    ids = torch.randint(50, (64, 12), generator=torch.Generator().manual_seed(0))
    loss_fn, data = (next_token, [ids] * 3) if form == "tokens" else (shifted_labels, [{"labels": ids}] * 3)
    found = []
    for micro_batch in ("auto", 16):
        torch.manual_seed(0)
        model = Tokens()
        brim.Trainer(
            model, data, loss_fn=loss_fn, device="cuda", micro_batch=micro_batch, capture="off", optimizer="SGD",
            run_dir=tmp_path / str(micro_batch),
        ).fit()  # fmt: skip
        found.append(torch.cat([p.detach().flatten().cpu() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1])
    said = (tmp_path / "16" / "log.txt").read_text()
    assert "warning: micro_batch" not in said


@pytest.mark.parametrize("classes", ["from 1 on", "padded with 0"])
def test_classes_of_which_the_loss_takes_one_are_left_in_bounds(classes, tmp_path):
    """0 would be the class -1, of which the kernel asserts that it does not come."""
    x = torch.randint(50, (64, 12), generator=torch.Generator().manual_seed(0))
    y = torch.randint(1, 51, (64, 12), generator=torch.Generator().manual_seed(1))

    def loss_fn(model, batch):
        logits, labels = model(batch[0]).flatten(0, 1), batch[1].flatten()
        if classes == "from 1 on":
            return F.cross_entropy(logits, labels - 1)
        return F.cross_entropy(logits, (labels - 1).clamp(min=0), reduction="none")[labels != 0].mean()

    found = []
    for micro_batch in ("auto", 16):
        torch.manual_seed(0)
        model = Tokens()
        brim.Trainer(
            model, [(x, y)] * 3, loss_fn=loss_fn, device="cuda", micro_batch=micro_batch, capture="off",
            optimizer="SGD", run_dir=tmp_path / str(micro_batch),
        ).fit()  # fmt: skip
        found.append(torch.cat([p.detach().flatten().cpu() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1])
