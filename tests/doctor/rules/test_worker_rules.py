from helpers.observations import loader, observed

from brim.doctor.order import Cures
from brim.doctor.rules.worker_rules import worker_findings
from brim.doctor.shares import shares


def found(seen):
    return [(finding.cause, finding.cures.num_workers) for finding in worker_findings(seen, shares(seen))]


def with_workers(count, **costs):
    return (loader(num_workers=count, samples=6400, batch_bytes=64 * 10**5, **costs),)


def test_a_loader_without_workers_is_not_their_matter():
    assert found(observed(data=0.005, loaders=(loader(),))) == []


def test_one_worker_that_cannot_keep_up_wants_others():
    seen = observed(step=0.03, data=0.025, loaders=with_workers(1, make_seconds=0.03, make_cpu_seconds=0.03))
    assert found(seen) == [("too-few-workers", 4)]


def test_more_workers_than_cores_are_too_many():
    seen = observed(data=0.005, loaders=with_workers(16, make_seconds=0.05, make_cpu_seconds=0.01))
    assert found(seen)[0][0] == "too-many-workers" and found(seen)[0][1] <= 4


def test_workers_that_make_cheap_batches_cost_more_than_they_bring():
    seen = observed(step=0.010, data=0.008, loaders=with_workers(2, make_seconds=1e-3, make_cpu_seconds=1e-3))
    (finding,) = worker_findings(seen, shares(seen))
    assert finding.cause == "workers-cost-more" and finding.cures == Cures(num_workers=0)
    assert 3 < finding.gain < 3.5


def test_full_cores_are_said_where_no_number_of_workers_helps():
    seen = observed(
        host={"cores": 2}, step=0.06, data=0.03, loaders=with_workers(2, make_seconds=0.1, make_cpu_seconds=0.09)
    )
    assert found(seen) == [("batches-too-expensive", None)]


def test_workers_that_keep_up_have_no_fault_though_handing_over_takes_a_little():
    seen = observed(step=0.06, data=0.004, loaders=with_workers(1, make_seconds=0.002, make_cpu_seconds=0.002))
    assert found(seen) == []


def test_far_too_many_are_told_even_if_nobody_waits():
    seen = observed(data=0.0001, loaders=with_workers(16, make_seconds=1e-3, make_cpu_seconds=1e-3))
    assert found(seen)[0][0] == "too-many-workers"


def test_workers_that_could_not_be_timed_are_told_where_much_is_waited_for_them():
    spawned = (loader(num_workers=2, start_method="spawn", make_seconds=None),)
    assert found(observed(data=0.006, loaders=spawned)) == [("slow-workers", None)]
    assert found(observed(data=0.001, loaders=spawned)) == []


def test_a_stream_that_waits_wants_more_workers_which_it_must_split_itself_among():
    slow = loader(num_workers=1, stream=True, length=None, make_seconds=0.08, make_cpu_seconds=0.001, batch_bytes=10**8)
    seen = observed(step=0.08, data=0.07, loaders=(slow,))
    (finding,) = worker_findings(seen, shares(seen))
    assert finding.cause == "too-few-workers" and finding.cures.are_none and "get_worker_info" in finding.cure
