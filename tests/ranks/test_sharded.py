"""A sharded model: the same training as on one rank, in every strategy's checkpoints, and when memory runs out."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from rank_training import (
    ROUNDING,
    SAMPLES,
    Tokens,
    X,
    Y,
    are_the_same_bits,
    columns,
    difference,
    net,
    this_rank,
    train,
)
from torch import nn

import brim
from brim.engine.fsdp.shards import check_model
from brim.errors import BrimError, ConfigError

FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"


class Blocks(nn.Module):
    """Repeated blocks, a tied pair of weights, a frozen part."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1 + this_rank())
        self.first = nn.Linear(6, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.LayerNorm(16)) for _ in range(3))
        self.last, self.tied = nn.Linear(16, 16), nn.Linear(16, 16)
        self.tied.weight = self.last.weight
        self.frozen = nn.Linear(16, 1).requires_grad_(False)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.frozen(self.tied(torch.tanh(self.last(x))))


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


LENGTHS = torch.randint(0, 9, (SAMPLES,), generator=torch.Generator().manual_seed(3)).float()
RULES = {"name": "SGD", "weight_decay": 0.1, "no_decay": ["bias", "norm"], "layer_decay": 0.8, "lr_of": {"tied": 0.01}}
CASES = {
    "plain": {},
    "momentum, clipped": {"optimizer": momentum, "clip_norm": 0.5},
    "adam": {"optimizer": "AdamW"},
    "windows of three": {"gradient_accumulation_steps": 3},
    "micro-batches of two": {"micro_batch": 2},
    "a schedule": {"optimizer": momentum, "scheduler": "cosine"},
    "blocks": {"kind": Blocks, "optimizer": momentum},
    "tokens": {"kind": Tokens, "loss_fn": None, "tokens": True, "optimizer": momentum},
    "dropped tail": {"drop_last": True},
    "groups by rule": {"kind": Blocks, "optimizer": RULES},
}


def train_cases(strategy="auto", names=tuple(CASES)):
    return {name: train_case(name, strategy) for name in names}


def train_case(name, strategy, **more):
    settings = {"strategy": strategy, "max_steps": 15, **CASES[name], **more}  # an epoch, with its odd end, and more
    model = settings.pop("kind", net)()
    loader = {"drop_last": settings.pop("drop_last")} if "drop_last" in settings else {}
    data = brim.Loader((X, Y, LENGTHS), 16, **loader) if settings.pop("tokens", False) else columns(**loader)
    return train(data, model, run_dir=f"run-{abs(hash(name)) % 10**6}-{strategy}", **settings)


@pytest.fixture(scope="module")
def alone(launch_once):
    return launch_once(1, train_cases)[0]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("world", [2, 4])
def test_final_weights_are_those_of_one_rank(launch, alone, world):
    names = tuple(CASES) if world == 2 else ("plain", "momentum, clipped", "blocks", "tokens")
    for found in launch(world, train_cases, strategy="fsdp", names=names):
        for name in names:
            expected = alone[name]
            assert difference(found[name], expected) <= ROUNDING, name
            assert found[name]["losses"] == pytest.approx(expected["losses"], rel=1e-4, abs=1e-6), name


def train_with_evaluation(strategy="auto", **settings):
    held_out = brim.Loader((X[:50], Y[:50]), 24)
    return train(
        model=Blocks(), strategy=strategy, eval_data=held_out, test_data=brim.Loader((X[50:93], Y[50:93]), 10),
        max_steps=None, epochs=2, optimizer=momentum, **settings,
    )  # fmt: skip


@pytest.mark.slow
def test_evaluation_counts_every_sample_once_and_the_best_weights_come_back(launch):
    expected = launch(1, train_with_evaluation)[0]
    for found in launch(3, train_with_evaluation, strategy="fsdp"):
        assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=1e-5)
        assert difference(found, expected) <= ROUNDING


class OwnMetric:
    """Data that evaluates a model by itself."""

    monitor, higher_is_better = "error", False

    def evaluate(self, model):
        assert type(model) is Blocks  # not a sharded one
        return {"error": float((model(X) - Y).square().mean())}


def train_with_own_metric(strategy="auto"):
    return train(model=Blocks(), strategy=strategy, eval_data=OwnMetric(), max_steps=None, epochs=2, optimizer=momentum)


@pytest.mark.slow
def test_data_that_evaluates_itself_gets_the_users_own_model(launch):
    expected = launch(1, train_with_own_metric)[0]
    for found in launch(2, train_with_own_metric, strategy="fsdp"):
        assert found["metrics"]["error"] == pytest.approx(expected["metrics"]["error"], rel=1e-5)


def train_some(places, steps):
    """Trainings, each in a folder and by a strategy; those whose folder is there go on."""
    return {
        folder: train(
            model=Blocks(), strategy=strategy, max_steps=steps, run_dir=folder, resume="auto", optimizer="AdamW",
            checkpoint_every=7,
        )
        for folder, strategy in places
    }  # fmt: skip


@pytest.mark.slow
def test_a_checkpoint_goes_on_in_every_strategy_and_number_of_ranks(launch, tmp_path):
    """In mid-epoch: an epoch has 13 batches, and seven are done."""
    worlds = {1: ["single"], 2: ["ddp", "fsdp"], 4: ["ddp", "fsdp"]}
    expected = launch(1, train_some, places=[(str(tmp_path / "whole"), "single")], steps=15)[0]
    (expected,) = expected.values()
    begun = [(world, strategy) for world, strategies in worlds.items() for strategy in strategies]
    for world, strategies in worlds.items():
        launch(world, train_some, places=[(str(tmp_path / f"{s}-{world}"), s) for s in strategies], steps=7)
    for world, strategies in worlds.items():
        places = []
        for strategy in strategies:
            for other, saved in begun:
                folder = tmp_path / f"{saved}-{other}-{strategy}-{world}"
                shutil.copytree(tmp_path / f"{saved}-{other}", folder)
                places.append((str(folder), strategy))
        for found in launch(world, train_some, places=places, steps=15):
            for folder, one in found.items():
                assert difference(one, expected) <= ROUNDING, folder
                assert one["losses"] == pytest.approx(expected["losses"][7:], rel=1e-4), folder


def save_model(strategy):
    model = Blocks()
    trainer = brim.Trainer(
        model, columns(), loss_fn=nn.MSELoss(), device="cpu", threads=1, max_steps=5, run_dir="run", strategy=strategy
    )
    trainer.fit(save_model=True, model_path="model.safetensors")
    return sorted(model.state_dict()), trainer.evaluate(columns()), trainer.predict([X[:5]]).shape


def test_the_model_is_the_users_own_again_when_training_is_over(launch):
    (names, metrics, shape), *others = launch(2, save_model, strategy="fsdp")
    assert names == sorted(Blocks().state_dict()) and shape == (5, 1)
    assert all(other[1] == metrics for other in others)


# ---- memory that runs out on one rank ----

MISHAP = {"stage": "", "first": 0, "most": 0, "times": 0}  # outside of the model, which is built again


class RunsOut(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        strike("backward", len(gradient))
        return gradient


def strike(stage, samples):
    if stage != MISHAP["stage"] or samples <= MISHAP["most"]:
        return
    MISHAP["first"] -= 1
    if MISHAP["first"] < 0 < MISHAP["times"]:
        MISHAP["times"] -= 1
        raise torch.OutOfMemoryError(FULL)


class Unlucky(Blocks):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        x = self.first(x)
        if self.training:
            self.seen += 1
        for number, block in enumerate(self.blocks):
            if number == 1:
                strike("forward" if self.training else "evaluation", len(x))
                x = RunsOut.apply(x)
            x = x + block(x)
        return self.frozen(self.tied(torch.tanh(self.last(x))))


def train_unlucky(trials=(None,), **settings):
    """One training after the other, each with another mishap."""
    found = []
    for number, trial in enumerate(trials):
        MISHAP.update({"stage": "", "first": 0, "most": 0, "times": 0})
        if trial is not None and trial["rank"] == this_rank():
            MISHAP.update({key: value for key, value in trial.items() if key != "rank"})
        found.append(
            train(
                columns(24), Unlucky(), strategy="fsdp" if trial is not None else "auto", max_steps=None, epochs=1,
                eval_data=brim.Loader((X[:50], Y[:50]), 24), eval_every="3 steps", optimizer=momentum,
                run_dir=f"run-{number}", **settings,
            )
        )  # fmt: skip
        assert trial is None or trial["rank"] != this_rank() or MISHAP["times"] == 0, "nothing happened"
    return found


@pytest.fixture(scope="module")
def undisturbed(launch_once):
    return launch_once(1, train_unlucky)[0][0]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_without_memory_holds_nobody_up_and_changes_nothing(launch, undisturbed, world):
    expected = undisturbed
    trials = [
        {"rank": number % world, "stage": stage, "first": number, "most": number, "times": 1}
        for number, stage in enumerate(("forward", "backward", "evaluation"))
    ]
    for ranks in launch(world, train_unlucky, trials=trials):
        for found in ranks:
            assert difference(found, expected) <= ROUNDING
            assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=1e-5)
            assert found["steps"] == expected["steps"]


@pytest.mark.slow
def test_memory_that_runs_out_while_averaged_weights_are_in_place_changes_nothing(launch):
    """The shards are built again, of averaged weights in an evaluation, and of trained ones in a step."""
    expected = launch(1, train_unlucky, ema=0.8, restore_best=False)[0][0]
    trials = [
        {"rank": 1, "stage": stage, "first": first, "most": 1, "times": 1}
        for stage, first in (("evaluation", 1), ("backward", 4))
    ]
    for ranks in launch(2, train_unlucky, trials=trials, ema=0.8, restore_best=False):
        for found in ranks:
            assert difference(found, expected) <= ROUNDING
            assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=1e-5)


@pytest.mark.slow
def test_it_can_happen_again_and_slices_shrink_each_time(launch, undisturbed):
    trial = {"rank": 1, "stage": "backward", "first": 0, "most": 0, "times": 3}
    for ranks in launch(2, train_unlucky, trials=[trial]):
        assert difference(ranks[0], undisturbed) <= ROUNDING
    said = (Path(ranks[0]["run"]) / "events.jsonl").read_text()
    assert all(f"micro-batches of {size}" in said for size in (6, 3, 2))
    assert "rank 1: " in said


def count_slices():
    """A buffer that counts forward passes, after a step that ran out of memory twice."""
    MISHAP.update({"stage": "backward", "first": 0, "most": 0, "times": 2 if this_rank() == 1 else 0})
    return train(columns(24), Unlucky(), strategy="fsdp", max_steps=None, epochs=1, optimizer=momentum)["weights"][
        "seen"
    ]


@pytest.mark.slow
def test_what_failed_attempts_did_to_buffers_is_undone(launch):
    """Eight batches of 24 in slices of 3 for each of two ranks, and one slice of the last three samples."""
    assert [int(seen) for seen in launch(2, count_slices)] == [8 * 4 + 1] * 2


class MadeLate(Unlucky):
    """Another count, in a buffer that the first forward pass fills."""

    def __init__(self):
        super().__init__()
        self.register_buffer("made", None)

    def forward(self, x):
        if self.training:
            self.made = torch.ones((), dtype=torch.int64) if self.made is None else self.made + 1
        return super().forward(x)


def train_made_late():
    MISHAP.update({"stage": "backward", "first": 7, "most": 0, "times": int(this_rank() == 1)})
    found = train(columns(24), MadeLate(), strategy="fsdp", max_steps=None, epochs=1, optimizer=momentum)["weights"]
    assert MISHAP["times"] == 0
    return found


@pytest.mark.slow
def test_a_buffer_that_a_forward_pass_has_filled_stays_when_shards_are_built_again_and_in_the_end(launch):
    for found in launch(2, train_made_late):
        assert found["made"] == found["seen"] > 7


class SharedCount(Unlucky):
    """Its count belongs to a second module too."""

    def __init__(self):
        super().__init__()
        self.reader = nn.Module()
        self.reader.register_buffer("seen", self.seen)


def train_shared_count():
    MISHAP.update({"stage": "backward", "first": 7, "most": 0, "times": int(this_rank() == 1)})
    return train(columns(24), SharedCount(), strategy="fsdp", max_steps=None, epochs=1, optimizer=momentum)["weights"]


@pytest.mark.slow
def test_a_buffer_of_two_modules_is_still_that_of_both_when_shards_are_built_again(launch):
    for found in launch(2, train_shared_count):
        assert found["reader.seen"] == found["seen"] > 7


class Averaging(nn.Module):
    """Keeps a mean of what it has seen."""

    def __init__(self):
        super().__init__()
        self.net = net()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.mean.lerp_(x.detach().mean(), 0.1)
        return self.net(x)


def train_with_a_bad_sample(strategy="auto"):
    x = X.clone()
    x[20] = torch.nan
    data = brim.Loader((x, Y), 16, shuffle=False)
    return train(data, Averaging(), strategy=strategy, max_steps=4, on_nan="skip")


@pytest.mark.slow
def test_a_step_that_is_left_out_leaves_nothing_in_buffers(launch):
    expected = launch(1, train_with_a_bad_sample)[0]
    for found in launch(2, train_with_a_bad_sample, strategy="fsdp"):
        assert found["weights"]["mean"].isfinite()
        trained = [name for name in expected["weights"] if name != "mean"]
        assert difference(*({"weights": {n: one["weights"][n] for n in trained}} for one in (found, expected))) < 1e-5


class Room:
    """What the second rank's card would say; ``later``: from step 64 after the last change on it has this much."""

    is_gpu = False

    def __init__(self, room, later=None):
        self.room, self.later = room, later
        self.looks = 0

    def begin(self):
        self.looks += 1

    def note_oom(self):
        pass

    def largest_fitting(self, largest):
        return 12 if this_rank() == 0 else self.room

    def has_more_memory(self):
        return this_rank() != 0 and self.later is not None and self.looks >= 3

    def note_usable_memory(self):
        self.room, self.later, MISHAP["times"] = self.later, None, 0


def grow(room, memory=5, later=None, steps=12):
    """``room`` and ``memory``: how many samples the second rank says there is room for, and is; its share is twelve."""
    MISHAP.update({"stage": "backward", "first": 0, "most": memory, "times": 10**6 if this_rank() == 1 else 0})
    card = Room(room, later)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brim.engine.fsdp.sharded_guard.MemoryWatch", lambda device: card)
        found = train(columns(24), Unlucky(), strategy="fsdp", max_steps=steps, optimizer=momentum)
    events = [json.loads(line) for line in (Path(found["run"]) / "events.jsonl").read_text().splitlines()]
    found["sizes"] = re.findall(r"batches of (\d+)", " ".join(event["line"] for event in events))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "memory", "sizes"),
    [
        pytest.param(5, 5, ["6", "3", "4"], id="halving was too much"),
        pytest.param(5, 3, ["6", "3", "4", "3"], id="a size that fails after all is not tried again"),
        pytest.param(12, 5, ["6", "3", "4"], id="nor is one that has failed before"),
        pytest.param(3, 5, ["6", "3"], id="there is no more room"),
        pytest.param(None, 5, ["6", "3"], id="nothing is known"),
    ],
)
def test_slices_grow_to_what_the_rank_with_least_room_has_room_for(launch, room, memory, sizes):
    (alone,) = launch(1, grow_alone)
    first, second = launch(2, grow, room=room, memory=memory)
    assert first["sizes"] == sizes
    assert difference(first, alone) <= ROUNDING and are_the_same_bits(first, second)


def grow_alone():
    MISHAP.update({"stage": "", "times": 0})
    return train(columns(24), Unlucky(), max_steps=12, optimizer=momentum)


@pytest.mark.slow
def test_slices_grow_when_somebody_has_left_the_card(launch):
    first, _ = launch(2, grow, room=5, memory=3, later=12, steps=6 + 64 + 3)
    assert first["sizes"] == ["6", "3", "4", "3", "12"]


class TwoExperts(nn.Module):
    """Each of the same size: the samples of a rank may all go to one of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.low, self.high = nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, x):
        found = torch.zeros(len(x), 1)
        for expert, chosen in ((self.low, x[:, :1] <= 0), (self.high, x[:, :1] > 0)):
            found = found + chosen * expert(x) if chosen.any() else found
        return found


def train_experts(strategy):
    x, is_low = X.clone(), torch.arange(len(X)) % 8 < 4  # of two ranks, one has low samples only
    x[:, 0] = torch.where(is_low, -1.0, 1.0)
    data = brim.Loader((x, Y[: len(x)]), 8, shuffle=False)
    return train(data, TwoExperts(), strategy=strategy, max_steps=4, optimizer=momentum)


def test_a_layer_that_only_some_ranks_compute_is_refused_since_fsdp_would_mix_it_with_another(launch):
    for outcome in launch.outcomes(2, train_experts, strategy="fsdp"):
        assert "a gradient on some ranks only" in " ".join(outcome.output.split()), outcome.output[-2000:]
    (end,) = launch(1, train_experts, strategy="auto")
    for found in launch(2, train_experts, strategy="ddp"):
        assert difference(found, end) <= ROUNDING


def test_a_scripted_module_is_refused():
    with pytest.raises(ConfigError, match="cannot shard a ScriptModule"):
        check_model(torch.jit.script(nn.Linear(2, 1)))


def run_out_for_good():
    try:
        train_unlucky([{"rank": 1, "stage": "forward", "first": 0, "most": 0, "times": 10**6}])
    except BrimError as error:
        return type(error).__name__, str(error)
    return "nothing", ""


@pytest.mark.slow
def test_where_nothing_smaller_is_left_all_ranks_end_and_say_why(launch):
    for kind, said in launch(3, run_out_for_good):
        assert kind == "CannotFit" and "micro-batches of one sample" in said


def random_trials(seed, number, world):
    generator = random.Random(seed)
    return [
        {
            "rank": generator.randrange(world),
            "stage": generator.choice(["forward", "backward", "evaluation"]),
            "first": generator.randrange(4),
            "most": generator.choice([0, 1, 2]),
            "times": generator.choice([1, 1, 2]),
        }
        for _ in range(number)
    ]


@pytest.mark.slow
def test_random_mishaps_change_nothing(launch, undisturbed):
    outcomes = launch.outcomes(3, train_unlucky, trials=random_trials(7, 3, 3))
    for outcome in outcomes:
        assert not outcome.error and outcome.exit_code == 0, outcome.output[-3000:]
        for found in outcome.value:
            assert difference(found, undisturbed) <= ROUNDING


# ---- what cannot be ----


def refuse(cases):
    return [reason_of(what) for what in cases]


def reason_of(what):
    model, settings = Blocks(), {}
    if what == "optimizer":
        settings["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    elif what == "norm":
        model = net(nn.BatchNorm1d(16))
    elif what == "scalar":
        model.scale = nn.Parameter(torch.ones(()))
    try:
        train(model=model, strategy="fsdp", **settings)
    except BrimError as error:
        return str(error)
    return "nothing"


def test_what_cannot_be_sharded_is_refused_by_all_ranks(launch):
    reasons = {"optimizer": "a function of the parameters", "norm": "GroupNorm", "scalar": r"shape \(1,\)"}
    for said in launch(2, refuse, cases=list(reasons)):
        for sentence, why in zip(said, reasons.values(), strict=True):
            assert re.search(why, sentence)


def test_without_ranks_there_is_nothing_to_spread_a_model_over(tmp_path):
    with pytest.raises(BrimError, match="torchrun"):
        brim.Trainer(nn.Linear(6, 1), columns(), loss_fn=nn.MSELoss(), strategy="fsdp", run_dir=tmp_path / "run")


def train_through_host():
    from brim.engine.fsdp import shards, through_host

    spread_out = shards.ShardedModel.shard_copy

    def through(self):
        module = spread_out(self)
        through_host.exchange_through_host(module)
        return module

    shards.ShardedModel.shard_copy = through
    return train_case("blocks", "fsdp")


@pytest.mark.slow
def test_exchanges_through_the_host_come_to_the_same(launch, alone):
    for found in launch(2, train_through_host):
        assert difference(found, alone["blocks"]) <= ROUNDING
