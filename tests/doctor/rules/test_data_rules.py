import pytest
from helpers.observations import loader, observed

from brim.doctor.observation import LineTime
from brim.doctor.order import Cures
from brim.doctor.rules.data_rules import data_findings, own_data_findings
from brim.doctor.shares import shares


def found(seen):
    return data_findings(seen, shares(seen))


def test_a_loader_that_is_never_waited_for_has_no_fault():
    assert found(observed(data=0.0003, loaders=(loader(),))) == []


def test_rows_fetched_one_by_one_are_named_and_whole_batches_tried():
    costs = {"make_seconds": 8e-3, "make_cpu_seconds": 8e-3, "samples": 51_200}
    (plain,) = found(observed(data=0.008, loaders=(loader(**costs),)))
    (columns,) = found(observed(data=0.008, loaders=(loader(columns=True, **costs),)))
    assert plain.cause == columns.cause == "per-sample-access"
    assert plain.cures == columns.cures == Cures(batched_access=True, num_workers=0)
    assert "__getitems__" in plain.cure and "BatchSampler" in columns.cure
    assert plain.further == columns.further == ()
    assert plain.share == pytest.approx(0.8) and plain.gain == pytest.approx(0.01 / (0.002 + 0.0004))


def test_rows_are_held_on_a_gpu_that_has_room_for_them():
    gpu = {"device": "cuda", "memory_free": 1 << 30}
    rows = loader(make_seconds=0.005, make_cpu_seconds=0.005, columns=True)
    (finding,) = found(observed(host=gpu, data=0.005, loaders=(rows,)))
    assert finding.further == (Cures(resident_data=True, batched_access=True, num_workers=0),)


def test_expensive_samples_want_workers_not_batched_access():
    slow = loader(make_seconds=0.03, make_cpu_seconds=0.03)
    (finding,) = found(observed(step=0.04, data=0.03, loaders=(slow,)))
    assert finding.cause == "no-workers" and finding.cures.num_workers == 3
    assert finding.gain == pytest.approx(0.04 / 0.0108, rel=0.05)


def test_what_a_row_may_cost_depends_on_how_many_tensors_it_has():
    """Augmenting a signal in a loop of Python's takes as long as collating a row of many columns."""
    costs = {"make_seconds": 64 * 120e-6, "make_cpu_seconds": 64 * 120e-6}
    (signal,) = found(observed(step=0.012, data=0.008, loaders=(loader(**costs, batch_tensors=2),)))
    (row,) = found(observed(step=0.012, data=0.008, loaders=(loader(**costs, batch_tensors=12),)))
    assert (signal.cause, row.cause) == ("no-workers", "per-sample-access")


def test_of_several_loaders_it_is_that_which_the_training_waits_for():
    slow = loader(make_seconds=0.04, make_cpu_seconds=0.04, waited=4.0, batches=100, line="train.py:3")
    quick = loader(make_seconds=0.001, make_cpu_seconds=0.001, waited=0.4, batches=400, line="train.py:4")
    seen = observed(step=0.05, data=0.044, window={"batches": 500}, loaders=(quick, slow))
    (finding,) = found(seen)
    assert (finding.cause, finding.line, round(finding.share, 3)) == ("no-workers", "train.py:3", 0.8)
    assert finding.gain == pytest.approx(0.05 / (0.05 / 4), rel=0.05)  # what it takes, on four cores


def test_a_wait_in_which_garbage_is_collected_is_no_fault_of_the_data_set():
    slow = loader(make_seconds=0.03, make_cpu_seconds=0.03)
    assert found(observed(step=0.04, data=0.03, window={"garbage": 2.9}, loaders=(slow,))) == []
    (finding,) = found(observed(step=0.04, data=0.03, window={"garbage": 1.0}, loaders=(slow,)))
    assert finding.cause == "no-workers"


def test_rows_are_rows_on_cores_that_others_have_too_and_waiting_for_samples_is_not():
    crowded = {"make_seconds": 0.125, "make_cpu_seconds": 0.123, "frame": True}
    (rows,) = found(observed(step=0.13, data=0.125, loaders=(loader(**crowded, make_running_seconds=0.03),)))
    (heavy,) = found(observed(step=0.13, data=0.125, loaders=(loader(**crowded, make_running_seconds=0.12),)))
    assert (rows.cause, heavy.cause) == ("per-sample-access", "no-workers")
    asleep = loader(make_seconds=0.07, make_cpu_seconds=0.004, make_running_seconds=0.004)
    (waiting,) = found(observed(step=0.08, data=0.07, loaders=(asleep,)))
    assert waiting.cause == "no-workers" and "mostly waiting" in waiting.evidence


def test_workers_of_a_loader_that_is_made_in_every_epoch_are_told_to_be_started_once():
    def cure_of(made):
        slow = loader(make_seconds=0.03, make_cpu_seconds=0.03, made=made)
        return found(observed(step=0.04, data=0.03, loaders=(slow,)))[0].cure

    assert "made once, before the loop" in cure_of(made=3) and "made once" not in cure_of(made=1)


def test_a_stream_is_not_given_workers_that_would_repeat_it():
    slow = loader(make_seconds=0.03, make_cpu_seconds=0.03, stream=True, length=None)
    (finding,) = found(observed(step=0.04, data=0.03, loaders=(slow,)))
    assert finding.cause == "no-workers" and finding.cures.are_none and "get_worker_info" in finding.cure


def test_collating_is_named_where_it_takes_the_time():
    slow = loader(make_seconds=0.03, make_cpu_seconds=0.03, collate_seconds=0.02)
    (finding,) = found(observed(step=0.04, data=0.03, loaders=(slow,)))
    assert finding.cause == "slow-collate"


def test_an_own_collate_function_that_works_on_elements_is_no_reading_of_rows():
    def of(**changed):
        costs = {"make_seconds": 5e-3, "make_cpu_seconds": 5e-3, "make_running_seconds": 5e-3, "collate_seconds": 4e-3}
        return found(observed(step=0.008, data=0.005, loaders=(loader(**costs | changed),)))[0]

    slow = of(default_collate=False)
    assert slow.cause == "slow-collate" and "pad_sequence" in slow.cure
    assert of().cause == of(default_collate=False, collate_seconds=1e-3).cause == "per-sample-access"
    assert of(default_collate=False, samples=100 * 1024).cause == "per-sample-access"
    frame_of_each_batch = of(default_collate=False, samples=100 * 256)  # pandas: 20 us a row, however it is stacked
    assert frame_of_each_batch.cause == "slow-collate"


def test_without_a_core_to_spare_workers_are_not_advised():
    slow = loader(make_seconds=0.03, make_cpu_seconds=0.03)
    (finding,) = found(observed(host={"cores": 1}, step=0.04, data=0.03, loaders=(slow,)))
    assert finding.cures.are_none and "no cores left" in finding.cure and finding.gain == 1


def test_a_file_for_every_sample_is_named_unless_decoding_it_takes_the_time():
    quick = loader(files_opened=64, make_seconds=0.02, make_cpu_seconds=0.018)
    decoded = loader(files_opened=64, make_seconds=0.1, make_cpu_seconds=0.1)
    files = found(observed(step=0.04, data=0.02, loaders=(quick,)))[0]
    assert files.cause == "small-files"
    assert (f"num_workers={files.cures.num_workers}" in files.cure) == bool(files.cures.num_workers)
    assert found(observed(step=0.11, data=0.1, loaders=(decoded,)))[0].cause == "no-workers"


def test_workers_that_are_started_in_every_epoch_are_told_by_the_time_that_takes():
    window = {"worker_starts": 0.3, "epochs": 5}
    seen = observed(data=0.004, window=window, loaders=(loader(num_workers=2),))
    restarts = next(finding for finding in found(seen) if finding.cause == "workers-restarted")
    assert restarts.share == pytest.approx(0.3) and restarts.cures == Cures(persistent_workers=True)
    kept = observed(data=0.004, window=window, loaders=(loader(num_workers=2, persistent_workers=True),))
    assert all(finding.cause != "workers-restarted" for finding in found(kept))


def test_batches_that_the_script_makes_itself_are_told_with_their_line():
    lines = (LineTime("train.py:9", "x = make()", "data", 0.4), LineTime("train.py:12", "", "backward", 0.6))
    seen = observed(lines=lines)
    (finding,) = own_data_findings(seen, shares(seen))
    assert finding.cause == "data-made-in-the-loop" and finding.line == "train.py:9"
    assert finding.share == pytest.approx(0.4)
    assert own_data_findings(observed(), shares(observed())) == []


def test_a_loader_that_is_begun_for_every_step_is_told_as_that():
    seen = observed(data=0.006, window={"epochs": 100}, loaders=(loader(num_workers=2),))
    (finding,) = found(seen)
    assert finding.cause == "epoch-every-step" and "2 workers" in finding.evidence
    whole = loader(length=64)  # its only batch is an epoch
    assert all(
        f.cause != "epoch-every-step" for f in found(observed(data=0.006, window={"epochs": 100}, loaders=(whole,)))
    )


def test_what_giving_up_an_epoch_takes_is_part_of_beginning_one_for_every_step():
    line = LineTime("train.py:15", "return next(iter(self.loader))[0]", "data", 0.17)
    seen = observed(data=0.006, window={"epochs": 100}, loaders=(loader(),), lines=(line,))
    (finding,) = found(seen)
    assert finding.cause == "epoch-every-step" and finding.share == pytest.approx(0.77)


def test_a_loader_that_is_made_in_every_epoch_is_to_be_made_once():
    again = loader(num_workers=2, made=5)
    (finding, *_) = found(observed(data=0.004, window={"worker_starts": 0.3, "epochs": 5}, loaders=(again,)))
    assert finding.cause == "workers-restarted" and finding.cures.are_none and "once, before the loop" in finding.cure


def test_drawing_samples_is_told_where_it_takes_longer_than_reading_them():
    (finding,) = found(observed(data=0.008, loaders=(loader(),)))
    assert finding.cause == "slow-sampler" and finding.share == pytest.approx(0.7)
    quick = loader(make_seconds=3e-4, make_cpu_seconds=3e-4, batch_bytes=64 * 10**5)
    assert all(f.cause != "slow-sampler" for f in found(observed(data=0.0015, loaders=(quick,))))


def test_rows_of_a_frame_are_slow_and_still_rows():
    costs = {"make_seconds": 30e-3, "make_cpu_seconds": 30e-3}
    assert found(observed(step=0.04, data=0.03, loaders=(loader(frame=True, **costs),)))[0].cause == "per-sample-access"
    assert found(observed(step=0.04, data=0.03, loaders=(loader(**costs),)))[0].cause == "no-workers"


def test_a_feed_of_brims_that_is_waited_for_is_told_without_a_loader():
    (finding,) = found(observed(data=0.004))
    assert finding.cause == "batches-too-expensive" and "brim.cached" in finding.cure
    assert found(observed(data=0.0008)) == []


def test_whole_batches_are_predicted_by_what_they_took_and_not_tried_where_they_are_none():
    costs = {"make_seconds": 8e-3, "make_cpu_seconds": 8e-3, "samples": 51_200, "was_probed": True}
    (seen,) = found(observed(data=0.008, loaders=(loader(batched_seconds=1e-4, **costs),)))
    assert seen.gain == pytest.approx(0.01 / 0.0021) and "by one index it takes 0.10 ms" in seen.evidence
    (none,) = found(observed(data=0.008, loaders=(loader(**costs),)))
    assert none.cures.are_none and none.cause == "per-sample-access"
