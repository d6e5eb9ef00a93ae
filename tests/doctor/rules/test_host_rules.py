import pytest
from helpers.observations import loader, observed

from brim.doctor.observation import LiveTrial
from brim.doctor.order import Cures
from brim.doctor.rules.host_rules import host_findings
from brim.doctor.shares import shares


def found(seen):
    return host_findings(seen, shares(seen))


def test_a_quiet_host_has_no_fault():
    assert (
        found(observed(window={"garbage": 0.01, "throttled": 0.001}, trials=(LiveTrial("threads", 1, 0.01, 0.01),)))
        == []
    )


def test_threads_are_judged_by_the_trial():
    seen = observed(trials=(LiveTrial("threads", 1, 0.004, 0.009), LiveTrial("threads", 2, 0.005, 0.009)))
    (finding,) = found(seen)
    assert finding.cause == "too-many-threads" and finding.cures == Cures(threads=1)
    # Of the trial's own steps, which may have been slower or faster than the timed ones.
    assert finding.share == pytest.approx(5 / 9) and finding.gain == pytest.approx(9 / 4)


def test_threads_that_wait_for_cores_which_others_have_are_no_fault_of_the_script():
    trials, crowded = (LiveTrial("threads", 1, 0.004, 0.04),), {"in_line": 0.3}
    assert found(observed(trials=trials, window=crowded, host={"processes": 2})) == []  # they are over
    by_itself = [
        {"host": {"threads": 16}},
        {"host": {"children": 2}},
        {"loaders": (loader(num_workers=4),)},
        {"window": {"in_line": 0.01}},
    ]
    for own in by_itself:
        (finding,) = found(observed(trials=trials, **{"window": crowded} | own))
        assert finding.cause == "too-many-threads"


def test_pauses_of_the_garbage_collector_are_counted():
    (finding,) = found(observed(window={"garbage": 0.2, "collections": 10}))
    assert finding.cause == "garbage-collection" and finding.share == pytest.approx(0.2)
    assert "10 collections of 20.0 ms" in finding.evidence


def test_a_throttled_container_is_told():
    (finding,) = found(observed(host={"cores": 2, "threads": 8}, window={"throttled": 0.3}))
    assert finding.cause == "cpu-throttled" and finding.cures == Cures(threads=2)


def test_waiting_for_a_disk_is_told():
    (finding,) = found(observed(window={"io_wait": 0.3, "major_faults": 7}))
    assert finding.cause == "slow-storage" and "7 pages" in finding.evidence
