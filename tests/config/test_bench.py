import logging
import signal

import pytest
import torch
from torch import nn

from brim.bench.step_rate import StepRate
from brim.config import bench, load_config
from brim.config.bench import StepBench, Way, bench_step, is_fused, not_fused, reason_of, ways_of
from brim.config.recommender_workload import RecommenderWorkload
from brim.engine.components.optimizer import make_optimizer
from brim.errors import BadNumbers, ConfigError, DataError, Preempted
from brim.hardware import DeviceChoice

pytestmark = pytest.mark.usefixtures("own_folder")

SMALL = [
    "data.n_users=60", "data.n_items=40", "model.name=bpr", "train_ds.batch_size=64", "trainer.device=cpu",
    "trainer.threads=1", "trainer.compile=eager",
]  # fmt: skip
NAMES = ["eager", "fused", "compiled", "captured", "compiled and captured"]
CPU = DeviceChoice(torch.device("cpu"), "on the CPU")


def config_of(*overrides):
    return load_config(None, [*SMALL, *overrides])


def pretend(monkeypatch, measure):
    """``measure(way, profiled)`` instead of a training."""
    monkeypatch.setattr(bench, "_measure", lambda way, workload, seconds, profiled: measure(way, profiled))


# For real


def test_what_works_on_the_cpu_has_numbers_and_the_rest_has_the_reason(tmp_path, capfd):
    said = []
    found = bench_step(config_of(), 0.2, said.append)
    ways = {way.name: way for way in found.ways}
    assert list(ways) == NAMES
    for name in ("eager", "fused", "compiled"):
        assert ways[name].samples_per_second > 0, ways[name].reason
        assert len(ways[name].rates) == bench.ROUNDS >= 2
        assert ways[name].reason == ""
    for name in ("captured", "compiled and captured"):
        assert ways[name].samples_per_second is None
        assert ways[name].reason == "capture='require' needs a CUDA GPU, and this run is on cpu"
    assert {way.gpu_busy for way in found.ways} == {None}
    assert said[:2] == ["reading the data", "round 1 of 3: eager"]
    assert capfd.readouterr() == ("", "")  # the runs are quiet
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "error", "part"),
    [
        ("trainer.lr=1e30", BadNumbers, "the loss is"),
        ("trainer.optimizer=Adamm", ConfigError, "did you mean 'Adam'"),
        ("trainer.device=cuda:99", ConfigError, "GPUs are visible"),
        ("data.split_ratio=[1, 0, 0]", DataError, "larger share"),
    ],
)
def test_what_the_training_itself_cannot_do_is_an_error(tmp_path, override, error, part):
    with pytest.raises(error, match=part):
        bench_step(config_of(override), 0.2)
    assert list(tmp_path.iterdir()) == []


def test_what_compilers_log_is_not_shown_and_loggers_are_as_they_were(monkeypatch, caplog):
    build = RecommenderWorkload.build_trainer

    def talkative(*arguments, **changes):
        logging.getLogger("torch").warning("a graph break")
        return build(*arguments, **changes)

    monkeypatch.setattr(RecommenderWorkload, "build_trainer", talkative)
    with pytest.raises(BadNumbers):
        bench_step(config_of("trainer.lr=1e30"), 0.1)
    assert caplog.text == ""
    assert logging.root.manager.disable == logging.NOTSET


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.01, 1e9, float("nan"), float("inf")])
def test_a_time_that_cannot_be_measured_for_is_refused(seconds):
    with pytest.raises(ConfigError, match=r"must be a number from 0\.1 to 3600"):
        bench_step(config_of(), seconds)


def test_settings_that_end_a_run_or_save_it_do_not_matter(tmp_path):
    short = ["trainer.epochs=1", "trainer.max_steps=3", "trainer.patience=1", "trainer.run_dir=run"]
    assert bench_step(config_of(*short), 0.1).ways[0].samples_per_second > 0
    assert list(tmp_path.iterdir()) == []


def test_a_system_that_asks_to_stop_is_heard(monkeypatch, tmp_path):
    def calculate_loss(model, batch):
        signal.raise_signal(signal.SIGTERM)
        return model.users.weight.sum()

    monkeypatch.setattr("brim.workloads.recommender.BPR.calculate_loss", calculate_loss)
    with pytest.raises(Preempted, match="before everything was measured"):
        bench_step(config_of(), 0.1)
    assert list(tmp_path.iterdir()) == []


# Turns


def test_each_way_has_a_turn_in_every_round_and_they_begin_with_another_one(monkeypatch):
    turns = []
    pretend(monkeypatch, lambda way, profiled: turns.append(way.name) or StepRate(1.0, 1))
    bench_step(config_of(), 1.0)
    assert turns == [*NAMES, *NAMES[1:], *NAMES[:1], *NAMES[2:], *NAMES[:2]]


def test_a_way_that_fails_is_not_tried_again_and_loses_its_numbers(monkeypatch):
    turns = []

    def measure(way, profiled):
        turns.append(way.name)
        if way.name == "compiled" and turns.count("compiled") == 2:
            raise RuntimeError("no compiler\nTraceback")
        return StepRate(2.0, 1)

    pretend(monkeypatch, measure)
    compiled = bench_step(config_of(), 1.0).ways[2]
    assert (compiled.samples_per_second, compiled.reason, turns.count("compiled")) == (
        None,
        "RuntimeError: no compiler",
        2,
    )


def test_the_threads_that_a_way_found_are_those_of_its_later_rounds(monkeypatch):
    threads = []

    def measure(way, profiled):
        threads.append(way.changes.get("threads"))
        return StepRate(1.0, 7)

    pretend(monkeypatch, measure)
    bench_step(config_of(), 1.0)
    assert threads == [None] * 5 + [7] * 10


def test_on_a_gpu_each_way_is_profiled_after_all_rounds(monkeypatch):
    turns = []

    def measure(way, profiled):
        turns.append(profiled)
        if profiled and way.name in ("eager", "fused"):
            raise RuntimeError("the profiler is taken")
        return StepRate(3.0, 1, 0.5 if profiled else None)

    pretend(monkeypatch, measure)
    gpu = DeviceChoice(torch.device("cuda", 0), "on the GPU")
    monkeypatch.setattr(bench, "choose_device", lambda *_: gpu)
    found = bench_step(config_of(), 1.0)
    assert turns == [False] * 15 + [True] * 5
    assert [way.gpu_busy for way in found.ways] == [None, None, 0.5, 0.5, 0.5]
    assert [way.samples_per_second for way in found.ways] == [3.0] * 5
    assert found.ways[0].reason == "not profiled: RuntimeError: the profiler is taken"


def test_rates_are_medians_and_ratios_are_to_the_eager_step():
    ways = [Way("eager", {}, rates=[9.0, 10.0, 1.0]), Way("fused", {}, rates=[18.0, 27.0, 2.0]), Way("c", {}, "why")]
    found = StepBench(CPU, 64, ways)
    assert found.as_json() == {
        "device": "cpu",
        "batch_size": 64,
        "ways": [
            {"way": "eager", "precision": None, "samples_per_second": 9.0, "ratio": 1.0, "gpu_busy": None,
             "memory": None, "reason": None, "rounds": [9.0, 10.0, 1.0]},
            {"way": "fused", "precision": None, "samples_per_second": 18.0, "ratio": 2.0, "gpu_busy": None,
             "memory": None, "reason": None, "rounds": [18.0, 27.0, 2.0]},
            {"way": "c", "precision": None, "samples_per_second": None, "ratio": None, "gpu_busy": None,
             "memory": None, "reason": "why", "rounds": []},
        ],
    }  # fmt: skip


def test_each_precision_that_is_asked_for_has_all_ways_and_one_that_fails_says_why(monkeypatch):
    asked = []

    def measure(way, profiled):
        asked.append(way.changes["precision"])
        if way.precision == "16-mixed":
            raise ConfigError("precision='16-mixed' needs a GPU; on the CPU use '32'")
        return StepRate(1.0, 1, memory=len(asked))

    pretend(monkeypatch, measure)
    found = bench_step(config_of(), 1.0, precisions=("32", "16-mixed"))
    assert [way.label for way in found.ways[:2]] == ["eager, 32", "fused, 32"] and len(found.ways) == 10
    assert {way.reason for way in found.ways[5:]} == {"precision='16-mixed' needs a GPU"}
    assert asked.count("16-mixed") == 5 and found.ways[0].memory > 1  # the most of all rounds
    assert found.as_json()["ways"][0]["precision"] == "32"


@pytest.mark.parametrize(("name", "part"), [("bf17", "did you mean"), ("16-true", "bf16-true")])
def test_a_precision_that_there_is_not_is_refused_before_anything_is_read(name, part):
    with pytest.raises(ConfigError, match=part):
        bench_step(config_of(), 1.0, precisions=("32", name))


@pytest.mark.slow
def test_for_real_in_two_precisions():
    found = bench_step(config_of(), 0.1, precisions=("32", "bf16-mixed"))
    rates = {way.label: way.samples_per_second for way in found.ways}
    assert rates["eager, 32"] > 0 and rates["eager, bf16-mixed"] > 0


# Ways


@pytest.mark.parametrize("optimizer", [None, "adam", "SGD", {"name": "AdamW", "weight_decay": 0.1}, {"fused": True}])
def test_the_eager_step_has_the_optimizer_that_torch_makes_by_itself(optimizer):
    assert is_fused(optimizer, 0.1)
    fused, plain = (make_optimizer(o, nn.Linear(2, 2), 0.1) for o in (optimizer, not_fused(optimizer, 0.1)))
    assert type(fused) is type(plain)
    assert plain.defaults == {**fused.defaults, "fused": None}


@pytest.mark.parametrize("optimizer", ["RMSprop", {"name": "Adam", "foreach": True}, {"fused": False}])
def test_an_optimizer_that_is_not_fused_stays_and_the_fused_way_says_so(optimizer):
    assert not_fused(optimizer, 0.1) == optimizer
    config = config_of()
    config.trainer.optimizer = optimizer
    assert ways_of(config)[1].reason == "the configured optimizer is not fused"


@pytest.mark.parametrize(("compiler", "used"), [("false", True), ("true", True), ("aot_eager", "aot_eager")])
def test_the_compiled_ways_have_the_configured_compiler_and_the_others_none(compiler, used):
    ways = ways_of(config_of(f"trainer.compile={compiler}"))
    assert [way.changes["compile"] for way in ways] == [False, False, used, False, used]
    assert [way.changes["capture"] for way in ways] == ["off", "off", "off", "require", "require"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigError("x needs y; use z"), "x needs y"),
        (ConfigError("capture='require', and the step cannot be captured: too slow"),
         "the step cannot be captured: too slow"),
        (RuntimeError("\n  no; compiler\nmore"), "RuntimeError: no; compiler"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_reason_is_one_short_line(error, reason):
    assert reason_of(error) == reason


@pytest.mark.gpu
def test_a_captured_step_is_measured_beside_an_eager_one(tmp_path):
    found = bench_step(load_config(None, ["model.name=bpr", "trainer.device=cuda"]), 1.5)
    ways = {way.name: way for way in found.ways}
    captured = ways["captured"]
    assert captured.samples_per_second is not None, captured.reason
    assert found.ratio(captured) > 0
    assert 0 < ways["eager"].gpu_busy <= 1 and 0 < captured.gpu_busy <= 1
    assert list(tmp_path.iterdir()) == []


def test_each_way_can_be_measured_with_the_channels_last_too():
    plain, last = (ways_of(config_of(), precision="32", memory_format=name) for name in ("preserve", "channels_last"))
    assert [way.name for way in last] == [f"{way.name}, channels last" for way in plain]
    assert {way.changes["memory_format"] for way in last} == {"channels_last"}
    decided = ways_of(config_of(), frozenset({"memory_format"}), memory_format="channels_last")
    assert all(way.reason for way in decided)
