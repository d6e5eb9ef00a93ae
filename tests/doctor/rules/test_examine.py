"""The rules on what was seen of planted scripts: ``benchmarks/doctor.py --observations tests/doctor/recorded``."""

from pathlib import Path

import pytest
from helpers.observations import loader, observed, profiled

from brim.doctor.observation import Host, LineTime, LiveTrial, Observation, Window, read_observation
from brim.doctor.rules.examine import examine, is_worth_it, verdict
from brim.doctor.rules.finding import Finding
from brim.doctor.shares import Shares, shares

PLANTED = Path(__file__).parents[1] / "planted"
RECORDED = Path(__file__).parents[1] / "recorded"


def cause(script):
    return script.read_text().splitlines()[0].partition("cause:")[2].strip()


def test_every_planted_script_that_needs_no_gpu_was_recorded():
    scripts = {script.stem for script in PLANTED.glob("*.py") if not script.stem.startswith("cuda")}
    assert scripts == {file.stem for file in RECORDED.glob("*.json")}
    assert sum(cause(PLANTED / f"{name}.py") == "none" for name in scripts) >= 6


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.json")), ids=lambda file: file.stem)
def test_the_planted_cause_comes_first_and_clean_scripts_have_none(file):
    seen = read_observation(file.read_text())
    found = [finding.cause for finding in examine(seen, shares(seen))]
    expected = cause(PLANTED / f"{file.stem}.py")
    assert (found[:1] or ["none"]) == [expected]


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.json")), ids=lambda file: file.stem)
def test_shares_add_up_and_findings_are_within_the_step(file):
    seen = read_observation(file.read_text())
    split = shares(seen)
    assert sum(split.as_dict().values()) == pytest.approx(1)
    for finding in examine(seen, split):
        assert 0 <= finding.share <= 1.0 + 1e-9
        assert finding.gain is None or finding.gain >= 1
        assert finding.what and finding.evidence and finding.cure


def seen_on(device):
    return Observation("measured", 50, Host(2, 2, device=device), timed=Window(50, 1.0))


def test_a_step_that_computes_is_told_that_the_loader_cannot_help():
    said = verdict(seen_on("cuda"), Shares(0.02, 0.0, 0.9, 0.01, 0.07), [])
    assert said.startswith("compute-bound: 90 % of the step") and "changing the loader cannot help" in said
    assert "bf16" in said and "torch.compile" in said
    on_cpu = verdict(seen_on("cpu"), Shares(0.02, 0.0, 0.9, 0.0, 0.08), [])
    assert "torch.compile (brim doctor --apply measures it), more cores, or a GPU" in on_cpu


def test_the_worst_finding_is_the_verdict():
    worst = Finding("no-workers", "w", "e", "c", share=0.6, gain=2.5)
    said = verdict(seen_on("cpu"), Shares(0.6, 0.0, 0.4, 0.0, 0.0), [worst, Finding("other", "w", "e", "c", 0.1)])
    assert said == "bound by no-workers: 60 % of the step is lost to it; without it up to 2.5 times as fast"


@pytest.mark.parametrize("cause", ["per-sample-access", "optimizer-not-fused"])
def test_what_torch_as_it_comes_costs_is_no_fault_where_it_is_little(cause):
    found = [Finding(cause, "w", "e", "c", share, gain=1 / (1 - share)) for share in (0.12, 0.2)]
    assert [is_worth_it(finding) for finding in found] == [False, True]
    assert is_worth_it(Finding("no-workers", "w", "e", "c", 0.12, gain=1.14))


def test_where_nothing_stands_out_that_is_said():
    assert "nothing stands out" in verdict(seen_on("cpu"), Shares(0.1, 0.0, 0.5, 0.0, 0.4), [])


def test_what_is_wrong_comes_before_how_the_training_is():
    lines = (LineTime("train.py:8", "log(loss)", "logging", 0.25),)
    seen = observed(lines=lines, profile=profiled(operators=500))
    split = Shares(0.0, 0.0, 0.2, 0.0, 0.8)
    assert [finding.cause for finding in examine(seen, split)] == ["logging-every-step", "too-little-compute"]
    little = observed(lines=(LineTime("train.py:8", "log(loss)", "logging", 0.12),), profile=profiled(operators=500))
    assert examine(little, split)[0].cause == "too-little-compute"


def test_threads_that_other_processes_make_slow_are_not_the_scripts_worst_fault():
    lines = (LineTime("train.py:8", "log(loss)", "logging", 0.25),)
    trials = (LiveTrial("threads", 1, 0.002, 0.01),)
    split = Shares(0.0, 0.0, 0.7, 0.0, 0.3)
    ordinary = observed(lines=lines, trials=trials)
    many = observed(lines=lines, trials=trials, host={"threads": 16})
    assert examine(ordinary, split)[0].cause == "logging-every-step"
    assert examine(many, split)[0].cause == "too-many-threads"


def test_garbage_of_samples_goes_away_with_them():
    rows = loader(make_seconds=8e-3, make_cpu_seconds=8e-3, samples=51_200)
    seen = observed(data=0.008, window={"garbage": 0.3}, loaders=(rows,))
    assert [finding.cause for finding in examine(seen, Shares(0.8, 0.0, 0.2, 0.0, 0.0))] == ["per-sample-access"]


def test_an_epoch_that_is_begun_for_every_step_is_given_up_in_the_loop():
    lines = (LineTime("train.py:15", "return next(iter(self.loader))[0]", "data", 0.17),)
    seen = observed(data=0.006, window={"epochs": 100}, loaders=(loader(),), lines=lines)
    (finding,) = examine(seen, shares(seen))
    assert finding.cause == "epoch-every-step"
