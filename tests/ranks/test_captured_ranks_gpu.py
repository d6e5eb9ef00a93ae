"""Captured steps of ranks: two that share a GPU over gloo, and one alone over NCCL, against the same ranks eager."""

import signal
import time

import pytest
import torch
from rank_training import SAMPLES, Tokens, X, Y, alone_of_one, are_the_same_bits, difference, this_rank
from torch import nn

import brim
from brim.engine.captured import trial

pytestmark = pytest.mark.gpu
EPOCHS = 6
LENGTHS = torch.arange(SAMPLES, dtype=torch.float32) % 7 + 1


def mlp(*middle):
    torch.manual_seed(1 + this_rank())
    return nn.Sequential(nn.Linear(6, 64), nn.GELU(), *middle, nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


class OnOneRank(nn.Module):
    """One part has a gradient on the second rank only."""

    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.rare = nn.Linear(6, 1)

    def calculate_loss(self, batch):
        x, y = batch
        output = self.net(x) + (self.rare(x) if this_rank() == 1 else 0)
        return (output - y).square().mean()


MODELS = {
    "plain": mlp,
    "dropout": lambda: mlp(nn.Dropout(0.2)),
    "norm": lambda: mlp(nn.BatchNorm1d(64)),
    "tokens": Tokens,
    "on one rank": OnOneRank,
    "synchronised norm": lambda: nn.SyncBatchNorm.convert_sync_batchnorm(mlp(nn.BatchNorm1d(64))),
}


class StopAt(brim.Callback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, step, loss):
        if step == self.step and this_rank() == trainer.ranks.world - 1:
            trainer.stop("enough")


class SignalAt(brim.Callback):
    """The way a scheduler asks: from outside, at no particular moment."""

    def on_epoch_end(self, trainer, epoch):
        if epoch == 3 and this_rank() == trainer.ranks.world - 1:
            signal.raise_signal(signal.SIGTERM)


ENDS = {"": [], "stop": [StopAt(50)], "signal": [SignalAt()]}


def hooked(model):
    """A hook on the last rank's model: what a graph would not call."""
    if this_rank() == 1:
        model.register_forward_hook(count_calls)
    return model


def count_calls(module, inputs, output):
    time.monotonic()


def train(
    capture, kind="plain", strategy="ddp", ends="", refused=False, samples=SAMPLES, bad=False, slow=False, **settings
):
    trial.LEAST_GAIN = trial.HOST_SHARE = 0.0  # in this rank's process: gains depend on how busy the machine is
    model = hooked(MODELS[kind]()) if refused else MODELS[kind]()
    tokens = isinstance(model, Tokens)
    own_loss = hasattr(model, "calculate_loss")
    x = X[:samples].clone()
    x[20] = torch.nan if bad else x[20]
    data = (x, Y[:samples], LENGTHS[:samples]) if tokens else (x, Y[:samples])
    trainer = brim.Trainer(
        model, brim.Loader(data, 16), brim.Loader(tuple(column[32:96] for column in data), 16),
        loss_fn=None if own_loss else nn.MSELoss(), optimizer=slow_adam if slow else "Adam", lr=1e-2, epochs=EPOCHS,
        strategy=strategy, device="cuda:0", run_dir=f"run-{capture}", capture=capture, callbacks=ENDS[ends], **settings,
    )  # fmt: skip
    try:
        result = trainer.fit()
    finally:
        report = trainer.captured
    weights = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    numbers = {
        "replays": report.replays,
        "eager": report.eager,
        "reason": report.reason or log_of(result.run),
        "steps": result.steps,
    }
    return {"weights": weights, "loss": result.metrics["loss"], "strategy": trainer.strategy, **numbers}


def log_of(run):
    own = run if this_rank() == 0 else run / "ranks" / f"rank-{this_rank()}"
    return (own / "log.txt").read_text() if (own / "log.txt").exists() else ""


def slow_adam(parameters):
    """Not fused: capturing lets it have other kernels."""
    return torch.optim.Adam(parameters, lr=1e-2)


def both_ways(**settings):
    """The same training twice in the same processes."""
    return {how: train(how, **settings) for how in ("off", "auto")}


def check(outcomes, close=0.0, least=40):
    for outcome in outcomes:
        eager, captured = outcome["off"], outcome["auto"]
        assert eager["strategy"] == captured["strategy"] == "ddp"
        assert captured["replays"] == outcomes[0]["auto"]["replays"] >= least, captured["reason"]
        assert captured["replays"] + captured["eager"] == captured["steps"] == eager["steps"]
        assert difference(captured, eager) <= close, captured["reason"]
        assert captured["loss"] == pytest.approx(eager["loss"], rel=1e-5)


SETTINGS = {
    "plain": {},
    "dropout": {"kind": "dropout"},
    "statistics of norms": {"kind": "norm", "samples": 192},
    "tokens, of which each rank has another number": {"kind": "tokens"},
    "clipped": {"clip_norm": 0.1},
    "a schedule": {"scheduler": "cosine"},
    "several batches a step": {"gradient_accumulation_steps": 2},
    "slices": {"micro_batch": 3},
    "bf16": {"precision": "bf16-mixed"},
    "fp16": {"precision": "16-mixed"},
    "fp16 and a schedule, which waits where a step overflows": {"precision": "16-mixed", "scheduler": "cosine"},
    "bad steps left out": {"on_nan": "skip", "bad": True},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_two_ranks_replay_what_they_would_have_computed(launch, name):
    # A rate that moves is a 32-bit number on the device, and so rounded.
    close = 1e-5 if "schedule" in name else 0.0
    check(launch(2, both_ways, **SETTINGS[name]), close, least=20)


def test_the_law_holds_against_one_rank(launch):
    alone = launch(1, train, capture="auto", strategy="auto")[0]
    for found in launch(2, train, capture="require"):
        assert found["replays"] >= 40
        assert difference(found, alone) <= 1e-4


def test_one_rank_over_nccl_replays_as_well(launch):
    check(launch(1, both_ways, environment=alone_of_one()))


def test_a_rank_that_cannot_capture_makes_all_eager(launch):
    outcomes = launch(2, both_ways, refused=True)
    for outcome in outcomes:
        assert outcome["auto"]["replays"] == 0
        assert difference(outcome["auto"], outcome["off"]) == 0
    assert "another rank" in outcomes[0]["auto"]["reason"] and "hook" in outcomes[1]["auto"]["reason"]


def test_optimizers_step_alike_on_all_ranks_where_one_cannot_capture(launch):
    first, second = launch(2, train, capture="auto", refused=True, slow=True)
    assert first["replays"] == second["replays"] == 0
    assert are_the_same_bits(first, second)


def test_where_it_is_required_all_ranks_end_together(launch):
    outcomes = launch.outcomes(2, train, capture="require", refused=True)
    assert [outcome.error for outcome in outcomes] == ["ConfigError", "ConfigError"]
    assert "another rank" in outcomes[0].message and "hook" in outcomes[1].message


def test_gradients_on_some_ranks_only_are_not_captured(launch):
    outcomes = launch(2, both_ways, kind="on one rank")
    for outcome in outcomes:
        assert outcome["auto"]["replays"] == 0 and "gradient on some ranks" in outcome["auto"]["reason"]
        assert difference(outcome["auto"], outcome["off"]) == 0


def test_a_norm_that_exchanges_statistics_is_not_captured(launch):
    for outcome in launch(2, both_ways, kind="synchronised norm", samples=192):
        captured = outcome["auto"]
        assert captured["replays"] == 0 and "exchanges something" in captured["reason"]
        assert difference(captured, outcome["off"]) == 0


def test_a_stop_on_one_rank_stops_all_after_the_same_step(launch):
    outcomes = launch(2, both_ways, ends="stop")
    for outcome in outcomes:
        assert outcome["auto"]["steps"] == outcome["off"]["steps"] == 50
        assert outcome["auto"]["replays"] > 0
        assert difference(outcome["auto"], outcome["off"]) == 0


def test_a_signal_to_one_rank_stops_all(launch):
    outcomes = launch.outcomes(2, train, capture="auto", ends="signal")
    assert [outcome.error for outcome in outcomes] == ["Preempted", "Preempted"]
    steps = {outcome.message.split("after step ")[1].split(";")[0] for outcome in outcomes}
    assert len(steps) == 1
    assert "the whole step is captured" in outcomes[0].output


def test_a_batch_that_leaves_a_rank_without_a_sample_is_eager_on_both(launch):
    check(launch(2, both_ways, samples=193))  # the last batch has one sample
