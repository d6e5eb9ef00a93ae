"""Evaluation captured on a GPU: the same numbers as eager, while training moves the weights."""

import copy

import pytest
import torch
from torch import nn

import brim

pytestmark = pytest.mark.gpu


class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.rand((), device=x.device)


class Waiting(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out if self.training or out.sum().item() > 0 else -out


class Recorded(brim.Callback):
    """The metrics of every evaluation, with those of an eager one over the same weights."""

    def __init__(self, rows, loss_fn):
        self.rows, self.loss_fn, self.pairs, self.replays = rows, loss_fn, [], 0

    def on_evaluate(self, trainer, metrics):
        found = trainer._run.evaluations.evaluator.captured
        self.replays = 0 if found is None else found.report.replays
        self.reason = "off" if found is None else found.report.reason
        model = copy.deepcopy(trainer.model).eval()
        x, y = (column.to("cuda") for column in self.rows)
        with torch.no_grad(), trainer.precision.autocast():
            self.pairs.append((metrics["loss"], self.loss_fn(model(x).float(), y).item()))


def train(twins, model, capture="require", length=320, loss_fn=None, **settings):
    rows, loss_fn = twins.rows(length), loss_fn or nn.MSELoss()
    seen = Recorded(rows, loss_fn)
    found = twins.train(
        model, twins.rows(), capture, loss_fn=loss_fn, eval_data=brim.Loader(rows, 32), eval_every=1, epochs=4,
        callbacks=lambda: [seen], **settings,
    )  # fmt: skip
    return found, seen


@pytest.mark.parametrize("length", [320, 330])
@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize(
    "layers",
    [(), (nn.BatchNorm1d, nn.Dropout)],
    ids=["plain", "norm and dropout"],
)
def test_replayed_evaluations_follow_the_weights(twins, precision, layers, length):
    size = {nn.BatchNorm1d: 64, nn.Dropout: 0.3}
    _, seen = train(
        twins, lambda: twins.mlp(*(kind(size[kind]) for kind in layers)), length=length, precision=precision
    )
    assert seen.reason == "" and seen.replays >= 3 * 10
    close = 1e-5 if precision == "32" else 2e-2
    for captured, eager in seen.pairs:
        assert captured == pytest.approx(eager, rel=close)
    assert len({eager for _, eager in seen.pairs}) == len(seen.pairs)  # the weights did move


def test_training_is_the_same_with_and_without(twins):
    (captured, seen), (eager, plain) = train(twins, twins.mlp), train(twins, twins.mlp, "off")
    assert seen.replays and plain.reason == "off"
    assert captured.equals(eager)
    assert [one for one, _ in seen.pairs] == pytest.approx([one for one, _ in plain.pairs], rel=1e-6)


@pytest.mark.parametrize(("kind", "why"), [(Noisy, "random numbers"), (Waiting, "wait for a number")])
def test_what_a_graph_would_not_repeat_stays_eager_and_is_said(twins, kind, why):
    found, seen = train(twins, lambda: nn.Sequential(nn.Linear(16, 64), kind(64, 1)), "auto")
    assert not seen.replays and why in seen.reason
    assert "evaluation is eager" in (found.folder / "events.jsonl").read_text()


def test_counted_losses_come_out_exactly(twins):
    def classes():
        x, y = twins.rows(330)
        return x, (y[:, 0] > 0).long().where(y[:, 0].abs() > 0.5, -100)  # some are not counted

    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 2))
    trainer = brim.Trainer(
        model, brim.Loader(classes(), 32), brim.Loader(classes(), 32), loss_fn=nn.CrossEntropyLoss(), epochs=4,
        run_dir=twins.folder / "counted", capture="require",
    )  # fmt: skip
    trainer.fit()
    assert trainer._run.evaluations.evaluator.captured.report.replays >= 20
    x, y = (column.to("cuda") for column in classes())
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model.eval()(x), y).item()
    assert trainer.evaluate()["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_run_that_is_over_holds_no_graph(twins):
    found, seen = train(twins, twins.mlp)
    assert seen.replays and not found.trainer._run.evaluations.evaluator.captured.graphs


def kept_outputs():
    """One that keeps every output until the end, as curves and correlations do."""
    from torchmetrics import SpearmanCorrCoef

    return SpearmanCorrCoef()


@pytest.mark.parametrize("given", ["names", "a function", "torchmetrics"])
def test_metrics_of_replayed_passes_are_those_of_eager_ones(twins, given):
    def metrics():
        if given == "torchmetrics":
            pytest.importorskip("torchmetrics")
            return {"rank": (kept_outputs(), lambda outputs, batch: (outputs[:, 0], batch[1][:, 0]))}
        return ["mae", "r2"] if given == "names" else {"far": lambda outputs, batch: (outputs - batch[1]).abs().amax(1)}

    found = {}
    for capture in ("require", "off"):
        seen = {}

        class Kept(brim.Callback):
            def on_evaluate(self, trainer, metrics, seen=seen):
                seen.setdefault("all", []).append(dict(metrics))
                captured = trainer._run.evaluations.evaluator.captured
                seen["replays"] = 0 if captured is None else captured.report.replays

        twins.train(
            twins.mlp, twins.rows(), capture, loss_fn=nn.MSELoss(), eval_data=brim.Loader(twins.rows(330), 32),
            eval_every=1, epochs=4, metrics=metrics(), callbacks=lambda kept=Kept: [kept()],
        )  # fmt: skip
        found[capture] = seen
    assert found["require"]["replays"] >= 3 * 10 and not found["off"]["replays"]
    for captured, eager in zip(found["require"]["all"], found["off"]["all"], strict=True):
        assert captured == pytest.approx(eager, rel=1e-5)


def test_a_call_of_evaluate_leaves_no_graph_behind(twins):
    trainer = brim.Trainer(
        twins.mlp(),
        brim.Loader(twins.rows(), 32),
        loss_fn=nn.MSELoss(),
        run_dir=twins.folder / "run",
        capture="require",
    )
    rows = brim.Loader(twins.rows(330), 32)
    trainer.evaluate(rows)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        trainer.evaluate(rows)
    assert torch.cuda.memory_allocated() == held
