import pytest
from helpers.observations import loader, observed, profiled

from brim.doctor.observation import TensorCalls
from brim.doctor.order import Cures
from brim.doctor.rules.cuda_rules import cuda_findings
from brim.doctor.shares import shares

CUDA = {"device": "cuda", "tf32": True}


def found(host=None, calls=(), loaders=(), **profile):
    seen = observed(host=CUDA | (host or {}), profile=profiled(**profile), calls=calls, loaders=loaders)
    return cuda_findings(seen, shares(seen))


def test_a_busy_gpu_has_no_fault():
    assert found() == []


def test_nothing_is_said_of_a_cpu():
    seen = observed(profile=profiled(sync=0.005))
    assert cuda_findings(seen, shares(seen)) == []


def test_waiting_for_the_gpu_is_told_with_the_line():
    calls = (TensorCalls("item", "train.py:20", "total += loss.item()", "to host", 1.0, 0.004),)
    (finding,) = found(calls=calls, compute=0.006, sync=0.002, syncs=1.0)
    assert finding.cause == "sync-in-the-loop" and finding.line == "train.py:20"
    assert finding.share == pytest.approx(0.2) and "total += loss.item()" in finding.evidence


def test_copies_from_pageable_memory_are_told_from_those_that_are_not_overlapped():
    (pageable,) = found(compute=0.007, copy=0.002, copy_all=0.002, pageable_copies=2.0)
    (pinned,) = found(compute=0.007, copy=0.002, copy_all=0.002)
    assert pageable.cause == "copy-not-pinned" and "pin_memory" in pageable.cure
    assert pinned.cause == "copy-not-overlapped"
    assert pageable.cures.are_none and pageable.further == ()  # the script has no loader


def test_copies_of_a_loaders_batches_have_cures():
    (finding,) = found(compute=0.007, copy=0.002, copy_all=0.002, pageable_copies=2.0, loaders=(loader(),))
    assert (finding.cures, *finding.further) == (Cures(pinned_copies=True), Cures(device_prefetch=True))
    told = finding.as_json()
    assert told["cures"] == {"pinned_copies": True} and told["further"] == [{"device_prefetch": True}]


def test_full_fp32_is_told_as_a_change_of_the_numbers():
    (finding,) = found(host={"tf32": False}, fp32_matmul_seconds=0.006)
    assert finding.cause == "fp32-without-tf32" and finding.changes_training
    assert found(host={"tf32": True}, fp32_matmul_seconds=0.006) == []


def test_data_parallel_retries_and_shapes_are_told():
    host = {"data_parallel": 2, "allocator_retries": 3, "cudnn_benchmark": True}
    causes = [finding.cause for finding in found(host=host, loaders=(loader(shapes=30),))]
    assert causes == ["data-parallel", "allocator-retries", "variable-shapes"]


def test_very_many_short_kernels_are_worth_compiling():
    (finding,) = found(kernels=2000, kernel_seconds=0.008)
    assert finding.cause == "not-compiled" and finding.gain is None and finding.cures == Cures(compile=True)
    assert found(host={"compiled": True}, kernels=2000, kernel_seconds=0.008) == []


def test_several_gpus_that_together_compute_no_longer_than_a_step_are_no_faster_than_one():
    (finding,) = found(compute=0.004, devices=(0.004, 0.003))
    assert finding.cause == "several-gpus-no-faster" and "2 GPUs" in finding.what
    assert finding.share == pytest.approx(0.6) and finding.gain == pytest.approx(0.01 / 0.007)
    assert found(devices=(0.009, 0.009)) == [] and found(devices=(0.004,)) == []


def test_pinning_in_the_main_thread_is_told():
    calls = (TensorCalls("pin_memory", "train.py:9", "x = x.pin_memory()", "pinned", 1.0, 0.002),)
    (finding,) = found(calls=calls)
    assert finding.cause == "pin-memory-in-the-loop" and finding.line == "train.py:9"
    assert finding.share == pytest.approx(0.2) and finding.evidence.startswith("2.00 ms a step, 20 % of it")


def test_memory_in_pieces_and_memory_given_back_are_told_apart():
    (pieces,) = found(host={"memory_reserved": 0.95, "memory_split": 0.4})
    assert pieces.cause == "fragmented-memory" and "expandable_segments" in pieces.cure and pieces.gain is None
    (back,) = found(allocation=0.002)
    assert back.cause == "memory-given-back" and "empty_cache" in back.cure and back.share == pytest.approx(0.2)
    assert found(host={"memory_reserved": 0.5, "memory_split": 0.4}, allocation=0.0001) == []
    (retries,) = found(host={"allocator_retries": 2}, allocation=0.002)
    assert retries.cause == "allocator-retries" and retries.gain == pytest.approx(1.25)
