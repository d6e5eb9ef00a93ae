from dataclasses import replace
from math import exp
from pathlib import Path

import pytest
from helpers.clock import Clock
from helpers.observations import observed

from brim.doctor import time_limit, treatment
from brim.doctor.child_process import ScriptFailed
from brim.doctor.diagnosis import Diagnosis
from brim.doctor.edits.suggestion import Suggestion
from brim.doctor.order import Cures
from brim.doctor.rules.finding import Finding
from brim.doctor.shares import Shares
from brim.doctor.time_limit import TimeLimit
from brim.doctor.treatment import STUDENT, can_be_certain, paired_gain, same_training, treat

WAITS, COMPUTES = Shares(1, 0, 0, 0, 0), Shares(0, 0, 1, 0, 0)  # for data; nothing else


def test_an_interval_is_wide_where_rounds_disagree():
    sure, unsure = paired_gain([2.0, 2.02, 1.98], [1.0, 1.0, 1.0]), paired_gain([2.0, 4.0, 0.9], [1.0, 1.0, 1.0])
    assert sure.is_certain and sure.low > 1.9 and not unsure.is_certain
    assert not paired_gain([1.0, 1.001, 1.001], [1.0, 1.0, 1.0]).is_certain


def test_losses_are_compared_as_far_as_the_script_repeats_itself():
    assert same_training([(1.0, 2.0), (1.0, 2.02)], [(1.0, 2.03)])  # as far apart as two untreated runs
    assert same_training([(1.0,), (2.0,)], [(1.0,)]) is None
    assert same_training([(), ()], [()]) is None
    assert same_training([(float("nan"),)] * 2, [(float("nan"),)])
    assert same_training([(1.0,)] * 2, [(float("nan"),)]) is False


@pytest.fixture
def script(monkeypatch):
    """Children that take as long as the cures say, by ``speed``, with the losses of ``losses``."""

    class Script:
        speed, losses, ran = {}, {}, []

        def watch(self, order, patience, say):
            self.ran.append(order.cures)
            step = self.speed.get(order.cures, 0.01)
            seen = observed(step=step * (1 + 0.0001 * len(self.ran)), losses=self.losses.get(order.cures, (1.0, 0.5)))
            return treatment_ended(seen)

    def treatment_ended(seen):
        from brim.doctor.child_process import Ended

        return Ended(seen, 0, "")

    made = Script()
    monkeypatch.setattr(treatment, "watch_script", made.watch)
    return made


def treated(*findings, limit=None, shares=WAITS, host=None):
    found = Diagnosis(observed(host=host), shares, 0.01, False, list(findings), "", [])
    return treat(Path("train.py"), (), found, 60.0, lambda _: None, limit=limit)


def finding(cures, **more):
    return Finding("cause", "what", "evidence", "cure", 0.5, cures=cures, **more)


def test_a_cure_that_helps_stays_while_the_next_is_tried(script):
    workers, threads = Cures(num_workers=2), Cures(threads=1)
    script.speed = {workers: 0.005, workers.with_others(threads): 0.00495}
    first, second = treated(finding(workers), finding(threads))
    assert first.kept and first.gain.ratio == pytest.approx(2, rel=0.01) and first.said == "same losses"
    assert not second.kept and second.said == "did not help for certain: undone"
    assert script.ran.count(Cures()) == 3 and workers.with_others(threads) in script.ran


def test_a_cure_that_can_no_longer_be_proved_is_given_up(script):
    threads = Cures(threads=1)
    script.speed = {threads: 0.012}
    (only,) = treated(finding(threads))
    assert not only.kept and only.gain is None and only.said == "did not help for certain (0.83 x): undone"
    assert script.ran == [Cures(), threads]


@pytest.mark.parametrize("logs", [[-0.1], [0.0], [0.5, -0.01], [0.5, 0.2], [0.1, 0.3], [0.2, 0.1999], [0.3, 0.15]])
def test_giving_up_early_costs_no_proof(logs):
    more = [step / 1000 for step in range(-1000, 4000)]
    thirds = [[*logs, *rest] for rest in ([[x] for x in more] if len(logs) == 2 else [[x, x] for x in more])]
    provable = any(paired_gain([exp(x) for x in all_logs], [1.0] * 3).low > 1.0 for all_logs in thirds)
    assert can_be_certain(logs) is provable
    assert can_be_certain([0.1, -0.2, 0.3]) and len(STUDENT) >= 2


def test_what_else_a_finding_names_is_tried_on_top(script):
    batched, resident = Cures(batched_access=True), Cures(batched_access=True, resident_data=True)
    script.speed = {batched: 0.005, resident: 0.002}
    copies = finding(Cures(pinned_copies=True), further=(Cures(device_prefetch=True),))
    first, second = treated(finding(batched, further=(resident,)), copies)
    assert first.kept and second.kept and second.gain.ratio == pytest.approx(2.5, rel=0.01)
    # Then nothing is copied any more.
    assert not any(cures.pinned_copies or cures.device_prefetch for cures in script.ran)


def test_compiling_is_tried_where_most_of_the_step_is_computing_and_once(script):
    (only,) = treated(shares=COMPUTES)
    assert only.name == "compile=True" and only.cause == "compute-bound"
    assert [one.cause for one in treated(finding(Cures(compile=True)), shares=COMPUTES)] == ["cause"]
    assert treated(shares=COMPUTES, host={"compiled": True}) == [] and treated() == []


def test_processes_that_compile_share_what_they_have_compiled(script, monkeypatch):
    folders = set()

    def watch(order, patience, say):
        assert Path(order.compile_cache).is_dir()
        folders.add(order.compile_cache)
        return script.watch(order, patience, say)

    monkeypatch.setattr(treatment, "watch_script", watch)
    treated(shares=COMPUTES)
    assert len(folders) == 1 and not Path(folders.pop()).exists()


def test_a_faster_training_with_other_losses_is_undone(script):
    script.speed, script.losses = {Cures(num_workers=2): 0.005}, {Cures(num_workers=2): (1.0, 0.7)}
    (only,) = treated(finding(Cures(num_workers=2)))
    assert not only.kept and only.same_training is False
    assert "faster, but with other losses, by up to 29 % in the first 20 steps" in only.said


def test_what_would_change_the_training_or_needs_other_code_is_not_tried(script):
    assert treated(finding(Cures()), finding(Cures(threads=1), changes_training=True)) == [] and script.ran == []


def test_what_would_not_end_in_time_is_named_and_not_tried_but_for_the_first(script, monkeypatch):
    clock, watch = Clock(), script.watch

    def slowly(order, patience, say):
        clock.sleep(10.0)
        return watch(order, patience, say)

    monkeypatch.setattr(time_limit, "time", clock)
    monkeypatch.setattr(treatment, "watch_script", slowly)
    cures = [Cures(threads=1), Cures(num_workers=2), Cures(fused_optimizer=True)]
    script.speed = {cures[0]: 0.005, cures[0].with_others(cures[1]): 0.004}
    first, second, third = treated(*map(finding, cures), limit=TimeLimit(125.0))
    assert first.gain is not None and second.gain is not None and third.gain is None
    assert third.said == "not tried: 125 s would not be enough; --limit SECONDS gives more"
    assert len(script.ran) == 12
    script.ran.clear()
    only, left = treated(*map(finding, cures[:2]), limit=TimeLimit(1.0))
    assert only.gain is not None and left.gain is None and len(script.ran) == 6


@pytest.mark.slow
def test_a_script_that_is_treated_trains_the_same():
    planted = Path(__file__).parent / "planted" / "per_sample.py"
    seen = observed()
    cures = Cures(batched_access=True, num_workers=0)
    found = Diagnosis(seen, WAITS, 0.01, False, [finding(cures)], "", [], pace=0.05)
    (only,) = treat(planted, (), found, 600.0, lambda _: None)
    assert only.same_training is True and only.gain is not None  # how large depends on what else the machine does


def test_what_changes_the_numbers_is_tried_on_request_and_the_change_is_said(script):
    precise = Cures(bf16=True)
    script.speed, script.losses = {precise: 0.005}, {precise: (1.0, 0.49)}
    found = Diagnosis(observed(host={"compiled": True}), COMPUTES, 0.01, False, [], "", [])
    assert treat(Path("train.py"), (), found, 60.0, lambda _: None) == []
    (only,) = treat(Path("train.py"), (), found, 60.0, lambda _: None, allow_changes=True)
    assert only.kept and only.cures == precise and only.loss_change == pytest.approx(0.02)
    assert only.said == "helped, and changes the losses by up to 2 % in the first 20 steps"


def test_tf32_is_tried_first_on_a_gpu_and_nothing_where_little_is_computed(script):
    on_gpu = Diagnosis(observed(host={"device": "cuda"}), COMPUTES, 0.01, False, [], "", [])
    tried = treat(Path("train.py"), (), on_gpu, 60.0, lambda _: None, allow_changes=True)
    assert [treatment.name for treatment in tried] == ["compile=True", "tf32=True", "bf16=True"]
    assert all(treatment.said.endswith(": undone") for treatment in tried)
    idle = Diagnosis(observed(), Shares(0.9, 0, 0.1, 0, 0), 0.01, False, [], "", [])
    assert treat(Path("train.py"), (), idle, 60.0, lambda _: None, allow_changes=True) == []


def test_a_diff_of_the_script_is_measured_where_nothing_else_is(script, monkeypatch, tmp_path):
    sources = []

    def watch(order, patience, say):
        sources.append(order.source)
        return script.watch(replace(order, cures=Cures(threads=1) if order.source else order.cures), patience, say)

    monkeypatch.setattr(treatment, "watch_script", watch)
    script.speed = {Cures(threads=1): 0.005}
    path = tmp_path / "train.py"
    suggestion = Suggestion("zero-grad-fills", str(path), "diff", "new text")
    wanted = Finding("zero-grad-fills", "what", "evidence", "cure", 0.5)
    found = Diagnosis(
        observed(),
        WAITS,
        0.01,
        False,
        [wanted],
        "",
        [],
        suggestions=[suggestion, replace(suggestion, path="x")],
    )
    (only,) = treat(path, (), found, 60.0, lambda _: None)
    assert only.name == "the diff for zero-grad-fills" and only.gain.ratio == pytest.approx(2, rel=0.01)
    assert only.said == "same losses" and not only.kept and sorted(set(sources)) == ["", "new text"]


def test_a_diff_is_measured_beside_compiling(script, tmp_path):
    path = tmp_path / "train.py"
    wanted = Finding("too-little-compute", "what", "evidence", "cure", 0.5, cures=Cures(compile=True))
    suggestion = Suggestion("too-little-compute", str(path), "diff", "new text")
    found = Diagnosis(observed(), WAITS, 0.01, False, [wanted], "", [], suggestions=[suggestion])
    names = [one.name for one in treat(path, (), found, 60.0, lambda _: None)]
    assert names == ["compile=True", "the diff for too-little-compute"]


def test_a_script_that_fails_with_a_cure_is_told(script, monkeypatch):
    def watch(order, patience, say):
        if not order.cures.are_none:
            raise ScriptFailed("ValueError: x", 1)
        return script.watch(order, patience, say)

    monkeypatch.setattr(treatment, "watch_script", watch)
    (only,) = treated(finding(Cures(threads=1)))
    assert not only.kept and only.said == "the script did not train with it (ValueError: x): undone"


def test_a_script_that_fails_by_itself_in_a_round_is_told(script, monkeypatch):
    def watch(order, patience, say):
        raise ScriptFailed("OSError: x", 1)

    monkeypatch.setattr(treatment, "watch_script", watch)
    (only,) = treated(finding(Cures(num_workers=2)))
    assert not only.kept and only.said == "the script failed without it too (OSError: x): not tried"
