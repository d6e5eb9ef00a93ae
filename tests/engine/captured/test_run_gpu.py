"""Captured steps within a run: evaluation, checkpoints, changes in the middle, other threads, NaN, no memory."""

import gc
import json

import pytest
import torch
from helpers.callbacks import StopAt
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

import brim
from brim.errors import BadNumbers

pytestmark = pytest.mark.gpu
CLOSE = 1e-5


def test_each_step_is_counted_and_the_run_says_what_it_did(twins):
    found = twins.train(twins.mlp, twins.rows(), "require")
    assert found.is_accounted_for
    assert found.report.replays > found.report.eager
    assert found.report.graphs >= 1 and found.report.reason == "" and found.report.seconds > 0
    assert found.report.gain is None or found.report.gain > 0
    events = [json.loads(line) for line in (found.folder / "events.jsonl").read_text().splitlines()]
    assert len([event for event in events if event["kind"] == "capture"]) == 1


def test_without_being_asked_small_models_are_captured(twins):
    eager, captured = twins(twins.mlp, twins.rows(), "auto")
    assert captured.is_accounted_for
    assert captured.equals(eager)


@pytest.mark.parametrize("layers", [(), (nn.BatchNorm1d, nn.Dropout)], ids=["plain", "norm and dropout"])
def test_evaluation_between_epochs_neither_disturbs_nor_is_disturbed(twins, layers):
    size = {nn.BatchNorm1d: 64, nn.Dropout: 0.3}
    settings = {"eval_data": brim.Loader(twins.rows(100), 32), "eval_every": 1, "epochs": 5}
    eager, captured = twins(lambda: twins.mlp(*(kind(size[kind]) for kind in layers)), twins.rows(), **settings)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE
    assert captured.metrics["loss"] == pytest.approx(eager.metrics["loss"], rel=1e-4)


@pytest.mark.parametrize("samples", [640, 650])
@pytest.mark.parametrize("log_every", [1, 7, 50])
def test_without_callbacks_the_graph_feeds_itself_and_keeps_its_losses(twins, samples, log_every):
    """Nobody looks between the steps: the data is picked and the losses are kept within the graph."""
    seen = []

    class AtTheEnd(brim.Callback):
        def on_fit_end(self, trainer):
            if trainer._run.captured is not None:
                graph = next(iter(trainer._run.captured.graphs.values()))
                seen.append((type(graph.inputs).__name__, graph._ring is not None))

    def train(how):
        torch.manual_seed(1)
        model = twins.mlp(nn.Dropout(0.2))
        data = brim.Loader(twins.rows(samples), 32)
        trainer = brim.Trainer(
            model, data, loss_fn=nn.MSELoss(), optimizer="Adam", lr=twins.LR, epochs=20, capture=how,
            log_every=log_every, checkpoint_every=1_000_000, run_dir=twins.folder / how, callbacks=[AtTheEnd()],
        )  # fmt: skip
        trainer.fit()
        lines = [json.loads(line) for line in (twins.folder / how / "metrics.jsonl").read_text().splitlines()]
        return model.state_dict(), [line["loss"] for line in lines if "loss" in line], trainer

    (eager, logged, _), (captured, replayed, trainer) = train("off"), train("require")
    assert trainer.captured.replays > 300
    assert seen == [("BlockInputs", True)]
    assert all(torch.equal(eager[name], captured[name]) for name in eager)
    assert logged == replayed


@pytest.mark.parametrize("at", [2, 31, 40])  # before anything is captured, within an epoch, at its end
@pytest.mark.parametrize("precision", ["32", "fp16"])
def test_a_run_resumed_in_the_middle_ends_with_the_bits_of_one_that_was_not(twins, at, precision):
    # Rates that are exact as floats: a device tensor then says the same as the host's double.
    schedule = lambda optimizer: LambdaLR(optimizer, lambda step: 0.5 ** (step // 16))  # noqa: E731
    settings = {"precision": precision, "scheduler": schedule, "epochs": 4}
    model, rows = (lambda: twins.mlp(nn.Dropout(0.3))), twins.rows(650)
    whole = twins.train(model, rows, "require", **settings)
    first = twins.train(model, rows, "auto", callbacks=lambda: [StopAt(at)], **settings)
    rest = twins.train(model, rows, "require", resume=first.folder, **settings)
    assert len(first.losses) == at and len(first.losses) + len(rest.losses) == len(whole.losses)
    if precision == "32":
        assert rest.equals(whole)
    else:
        assert rest.differs_from(whole) <= 1e-3
    assert torch.equal(rest.random, whole.random)


def test_a_captured_run_goes_on_eagerly_and_the_other_way_round(twins):
    model, rows = (lambda: twins.mlp(nn.Dropout(0.3))), twins.rows()
    whole = twins.train(model, rows, "off", epochs=4)
    for one, other in (("require", "off"), ("off", "require")):
        first = twins.train(model, rows, one, callbacks=lambda: [StopAt(45)], epochs=4)
        assert twins.train(model, rows, other, resume=first.folder, epochs=4).equals(whole)


class Thaw(brim.Callback):
    """Trains the last layer alone for an epoch, then all of them."""

    def on_fit_start(self, trainer):
        trainer.model[0].requires_grad_(False)

    def on_epoch_end(self, trainer, epoch):
        if epoch == 1:
            trainer.model[0].requires_grad_(True)


class Freeze(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        if epoch == 1:
            trainer.model[0].requires_grad_(False)


@pytest.mark.parametrize("change", [Thaw, Freeze])
def test_a_layer_thawed_or_frozen_in_the_middle_is_captured_anew(twins, change):
    eager, captured = twins(twins.mlp, twins.rows(), callbacks=lambda: [change()], epochs=4)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE
    assert captured.report.replays > 20  # more than the steps before the change


class Samples(Dataset):
    """Samples that must be asked for one by one."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows[0])

    def __getitem__(self, index):
        return tuple(column[index].clone() for column in self.rows)


@pytest.mark.parametrize("kind", ["brim", "torch"])
def test_workers_and_pinned_memory_do_not_disturb_the_capture(twins, kind):
    def loader():
        samples = Samples(twins.rows())
        if kind == "brim":
            return brim.Loader(samples, 32, feed="workers", num_workers=2, pin_memory=True)
        return DataLoader(samples, 32, num_workers=2, pin_memory=True, persistent_workers=True)

    eager, captured = twins(twins.mlp, loader)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


def test_a_sampler_of_nvml_does_not_disturb_the_capture(twins, meanwhile, sample_nvml):
    eager = twins.train(twins.mlp, twins.rows(), "off")
    with meanwhile(sample_nvml) as samples:
        captured = twins.train(twins.mlp, twins.rows(), "require")
    assert samples
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= CLOSE


@pytest.fixture
def cap():
    """Limits what torch may reserve to so many bytes more than it reserves now; lifted again at the end."""

    def limit(more):
        gc.collect()
        torch.cuda.empty_cache()
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + more) / total))

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def test_where_there_is_no_memory_for_a_graph_training_goes_on(twins, cap):
    def wide():
        return nn.Sequential(nn.Linear(16, 4096), nn.GELU(), nn.Linear(4096, 1))

    batches = [twins.rows(4096)] * 30
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    eager = twins.step_through(wide, batches, "off")
    taken = torch.cuda.max_memory_reserved() - before
    cap(taken + (48 << 20))  # enough for the eager step, not for a second set of activations beside it
    tried = twins.step_through(wide, batches, "auto")
    assert len(tried.losses) == 30
    assert tried.differs_from(eager) <= CLOSE
    assert tried.report.captured or tried.report.reason


def test_bad_numbers_are_found_where_the_eager_run_finds_them(twins):
    x, y = twins.rows(1920)
    x[32 * 40] = torch.nan
    told = []
    for capture in ("off", "require"):
        with pytest.raises(BadNumbers) as caught:
            twins.train(twins.mlp, (x, y), capture, epochs=1, shuffle=False, log_every=10)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "step 41 " in told[1]


def test_a_loop_of_ones_own_is_captured_and_its_schedule_followed(twins):
    batches = [tuple(column[i : i + 32] for column in twins.rows()) for i in range(0, 640, 32)] * 3

    def halve(number, model, optimizer):
        if number % 10 == 9:
            optimizer.param_groups[0]["lr"] *= 0.5

    def model():
        return twins.mlp(nn.Dropout(0.3))

    eager, captured = (twins.step_through(model, batches, how, after=halve) for how in ("off", "require"))
    assert captured.is_accounted_for
    assert captured.equals(eager)
    assert captured.losses == eager.losses
    assert float(captured.optimizer.param_groups[0]["lr"]) == twins.LR / 2**6


@pytest.mark.parametrize(
    "settings", [{"precision": "bf16"}, {"precision": "fp16"}, {"clip_norm": 0.1}, {"micro_batch": 8}]
)
def test_the_settings_of_a_loop_of_ones_own_hold_in_the_graph(twins, settings):
    batches = [tuple(column[i : i + 32] for column in twins.rows()) for i in range(0, 640, 32)] * 3
    eager, captured = (twins.step_through(twins.mlp, batches, how, **settings) for how in ("off", "require"))
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= (1e-3 if "precision" in settings else CLOSE)


def test_several_batches_at_once_are_one_step(twins):
    pairs = [[tuple(c[i + j : i + j + 16] for c in twins.rows()) for j in (0, 16)] for i in range(0, 640, 32)] * 3

    def run(how):
        torch.manual_seed(1)
        model = twins.mlp().to("cuda")
        step = brim.Step(model, torch.optim.Adam(model.parameters(), fused=True), nn.MSELoss(), capture=how, tell=str)
        losses = torch.stack([step(*pair) for pair in pairs])
        return losses, step.captured

    (eager, _), (captured, report) = run("off"), run("require")
    assert report.captured and report.replays > 0
    assert torch.allclose(eager, captured, rtol=1e-4)


def test_the_model_of_a_captured_run_is_an_ordinary_model(twins, tmp_path):
    found = twins.train(twins.mlp, twins.rows(), "require")
    torch.save(found.model.state_dict(), tmp_path / "model.pt")
    new = twins.mlp()
    new.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    x = twins.rows(8)[0]
    assert torch.allclose(found.model(x.cuda()).cpu(), new(x), atol=1e-4)
    found.model(x.cuda()).sum().backward()
    found.optimizer.step()
    assert all(bool(torch.isfinite(parameter).all()) for parameter in found.model.parameters())
