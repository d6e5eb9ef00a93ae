import pytest
from helpers.observations import observed, profiled

from brim.doctor.observation import LineTime, LiveTrial, OptimizerSeen
from brim.doctor.order import Cures
from brim.doctor.rules.step_rules import step_findings
from brim.doctor.shares import Shares, shares

COMPUTES = Shares(0.0, 0.0, 1.0, 0.0, 0.0)


def found(seen, split=COMPUTES):
    return step_findings(seen, split)


def adam(**changed):
    ordinary = {"name": "Adam", "tensors": 300, "elements": 9000, "foreach": None, "fused": None, "seconds": 0.004}
    return OptimizerSeen(**ordinary | changed)


def test_a_fused_update_is_advised_by_what_its_trial_saved_and_not_more_than_updates_take():
    (finding,) = found(observed(optimizers=(adam(),), trials=(LiveTrial("fused", 1, 0.003, 0.009),)))
    assert finding.cause == "optimizer-not-fused" and finding.cures == Cures(fused_optimizer=True)
    assert finding.share == pytest.approx(0.4)
    launches = Shares(0.0, 0.0, 0.2, 0.0, 0.8)
    seen = observed(
        profile=profiled(operators=900), optimizers=(adam(),), trials=(LiveTrial("fused", 1, 0.003, 0.009),)
    )
    assert [each.cause for each in found(seen, launches)] == ["optimizer-not-fused"]
    assert found(observed(optimizers=(adam(),), trials=(LiveTrial("fused", 1, 0.009, 0.009),))) == []


def test_filling_gradients_with_zeros_is_told_where_it_takes_time():
    fills = adam(zeroes_gradients=True, zero_grad_seconds=0.001)
    (finding,) = found(observed(optimizers=(fills,)))
    assert finding.cause == "zero-grad-fills" and finding.share == pytest.approx(0.1)
    assert found(observed(optimizers=(adam(zero_grad_seconds=0.001),))) == []


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("logging", "logging-every-step"),
        ("checkpoint", "checkpoint-in-the-loop"),
        ("python", "host-work-in-the-loop"),
        ("profiler", "profiler-in-the-loop"),
    ],
)
def test_work_beside_the_training_is_told_with_its_line(kind, cause):
    lines = (LineTime("train.py:8", "log(loss)", kind, 0.2), LineTime("train.py:9", "more()", kind, 0.1))
    (finding,) = found(observed(lines=lines))
    assert finding.cause == cause and finding.line == "train.py:8" and finding.share == pytest.approx(0.3)


def test_evaluation_is_told_where_it_takes_a_large_part():
    (finding,) = found(observed(window={"evaluation": 0.6}))
    assert finding.cause == "evaluation" and finding.share == pytest.approx(0.6)
    assert found(observed(window={"evaluation": 0.1})) == []


def test_graphs_that_are_compiled_again_are_told():
    seen = observed(host={"recompiles": 4, "compiled": True}, window={"step_seconds": (0.004, 0.005, 0.1)})
    (finding,) = found(seen)
    assert finding.cause == "variable-shapes" and finding.share == pytest.approx(0.5)
    assert found(observed(host={"recompiles": 1, "compiled": True})) == []


def test_a_model_that_is_no_longer_compiled_is_told():
    split = Shares(0.0, 0.0, 0.3, 0.0, 0.7)
    seen = observed(host={"compile_gave_up": True, "compiled": True}, profile=profiled(operators=500))
    (finding,) = found(seen, split)
    assert finding.cause == "variable-shapes" and "gave up" in finding.what and finding.share == pytest.approx(0.7)
    assert found(seen) == []


def test_a_step_of_many_small_operators_is_launch_bound():
    split = Shares(0.0, 0.0, 0.2, 0.0, 0.8)
    (finding,) = found(observed(profile=profiled(operators=500)), split)
    assert finding.cause == "too-little-compute" and "500 operators" in finding.evidence
    (on_gpu,) = found(observed(host={"device": "cuda"}, profile=profiled(operators=500)), split)
    assert "brim.Step" in on_gpu.cure and finding.cures == on_gpu.cures == Cures(compile=True)
    assert on_gpu.gain == pytest.approx(5) and finding.gain is None  # captured; what compiling brings, a trial tells
    (compiled,) = found(observed(host={"compiled": True}, profile=profiled(operators=500)), split)
    assert compiled.cures.are_none


def test_a_host_that_is_busy_with_something_else_is_not_launch_bound():
    split = Shares(0.0, 0.0, 0.2, 0.0, 0.8)
    lines = (LineTime("train.py:8", "log(loss)", "logging", 0.7),)
    assert [f.cause for f in found(observed(lines=lines, profile=profiled(operators=500)), split)] == [
        "logging-every-step"
    ]
    assert found(observed(profile=profiled(operators=3)), split) == []
    assert found(observed(window={"garbage": 0.7}, profile=profiled(operators=500)), split) == []


def test_a_host_that_sleeps_launches_nothing_unless_it_has_no_core():
    split, profile = Shares(0.0, 0.0, 0.1, 0.0, 0.9), profiled(operators=500)
    sleeps = {"cpu": 0.2, "in_line": 0.01}  # of a second
    assert found(observed(window=sleeps, profile=profile), split) == []
    for window in ({"cpu": 0.95, "in_line": 0.01}, {"cpu": 0.2, "in_line": 0.75}, {"cpu": 0.2}):
        assert [f.cause for f in found(observed(window=window, profile=profile), split)] == ["too-little-compute"]
    on_gpu = observed(host={"device": "cuda"}, window=sleeps, profile=profile)
    assert [f.cause for f in found(on_gpu, split)] == ["too-little-compute"]


def test_an_ordinary_step_has_no_fault():
    seen = observed(profile=profiled(), optimizers=(adam(),))
    assert found(seen, shares(seen)) == []


def test_what_backward_takes_to_add_to_zeros_belongs_to_filling_them():
    fills = adam(zeroes_gradients=True, zero_grad_seconds=0.0001)
    assert found(observed(optimizers=(fills,))) == []
    (finding,) = found(observed(optimizers=(fills,), trials=(LiveTrial("drop-gradients", 1, 0.006, 0.01),)))
    assert finding.cause == "zero-grad-fills" and finding.share == pytest.approx(0.4)


def test_anomaly_detection_is_told_with_what_its_trial_saved():
    def seen(*steps):
        trials = tuple(LiveTrial("no-anomaly-detection", 1, step, 0.01) for step in steps)
        return observed(host={"finds_anomalies": True}, trials=trials)

    (finding,) = found(seen(0.002))
    assert finding.cause == "anomaly-detection" and finding.gain == pytest.approx(5)
    assert finding.cures == Cures(no_anomaly_detection=True)
    (not_tried,) = found(seen())
    assert not_tried.gain is None and found(seen(0.0099)) == []
