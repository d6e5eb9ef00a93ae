"""Made-up traces, in microseconds, whose shares are known."""

import pytest
import torch

from brim.doctor.trace.events import END, FLOOR, FORWARD, STEP, sort_events
from brim.doctor.trace.reduce import reduce_events
from brim.doctor.watching.profiler import Profiler

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def event(cat, name, start, length, tid=1):
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length, "tid": tid}


def mark(moment, name=STEP):
    return event("user_annotation", name, moment, 0)


def reduced(*events):
    return reduce_events(sort_events(events))


def seconds(microseconds):
    return pytest.approx(microseconds * 1e-6)


def test_without_two_marks_there_is_no_step():
    assert reduced(mark(0), event("cpu_op", "aten::mm", 1, 1)) is None


def test_compute_on_a_cpu_is_the_time_of_operators_themselves_without_that_of_calling_them():
    floor = [
        event("user_annotation", FLOOR, 0, 10),
        event("cpu_op", "aten::add", 2, 2),
        event("cpu_op", "aten::add", 5, 2),
    ]
    found = reduced(
        *floor,
        mark(100),
        event("cpu_op", "aten::linear", 110, 50),  # 8 of its own, 2 of that for the call
        event("cpu_op", "aten::addmm", 112, 42),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 170, 20),  # no operator
        event("cpu_op", "aten::mm", 172, 12),
        mark(200),
    )
    assert found.steps == 1 and found.step == seconds(100)
    assert found.operators == 3 and found.dispatch == seconds(6)
    assert found.compute == seconds((8 - 2) + (42 - 2) + (12 - 2))
    assert found.top[0] == ("aten::addmm", seconds(42))


def test_operators_that_make_a_batch_are_data_not_compute():
    found = reduced(
        mark(0),
        event("user_annotation", LOADER, 0, 40),
        event("cpu_op", "aten::stack", 10, 20),
        event("cpu_op", "aten::index", 45, 5),
        mark(60, FORWARD),
        event("cpu_op", "aten::mm", 60, 30),
        mark(100),
    )
    assert found.data == seconds(40) and found.compute == seconds(35)
    assert found.before_forward == seconds(5)


def test_a_busy_gpu_is_computing_whatever_the_host_does():
    found = reduced(
        mark(0),
        event("kernel", "k", 0, 100, tid=7),
        event("user_annotation", LOADER, 20, 60),
        event("cuda_runtime", "cudaStreamSynchronize", 80, 20),
        mark(100),
    )
    assert found.compute == seconds(100)
    assert (found.data, found.sync, found.launch, found.copy) == (0, 0, 0, 0)


def test_a_host_that_is_ahead_of_the_gpu_is_waited_for():
    found = reduced(
        mark(0), mark(10), mark(20), mark(200, END),
        event("kernel", "k", 5, 90, tid=7), event("kernel", "k", 95, 105, tid=7),
    )  # fmt: skip
    assert found.steps == 2 and found.step == seconds(100) and found.compute == seconds(97.5)


def test_idle_time_goes_to_what_the_host_did_meanwhile():
    found = reduced(
        mark(0),
        event("user_annotation", LOADER, 0, 30),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 30, 10, tid=7),
        event("kernel", "k", 50, 20, tid=7),
        event("kernel", "k", 75, 5, tid=7),
        mark(100),
    )
    parts = [found.data, found.copy, found.compute, found.sync, found.launch]
    assert parts == [seconds(30), seconds(10), seconds(25), 0, seconds(35)]
    assert sum(parts) == pytest.approx(found.step)
    assert found.pageable_copies == 1


def test_a_copy_behind_a_kernel_is_hidden():
    found = reduced(
        mark(0),
        event("kernel", "k", 0, 60, tid=7),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, 40, tid=8),
        event("kernel", "k", 80, 20, tid=7),
        mark(100),
    )
    assert found.copy_all == seconds(40) and found.copy == seconds(20) and found.compute == seconds(80)


def test_the_gap_after_a_wait_for_the_gpu_is_lost_to_the_wait():
    found = reduced(
        mark(0),
        event("kernel", "k", 0, 500, tid=7),
        event("cuda_runtime", "cudaStreamSynchronize", 100, 405),
        event("kernel", "k", 600, 200, tid=7),  # launched when the host came back
        event("kernel", "k", 900, 100, tid=7),  # slow to come, but nobody had waited
        mark(1000),
    )
    assert found.sync == seconds(100) and found.launch == seconds(100) and found.compute == seconds(800)
    assert found.syncs == 1


def test_a_copy_to_the_host_with_nothing_else_running_is_waiting():
    found = reduced(
        mark(0),
        event("kernel", "k", 0, 50, tid=7),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 50, 20, tid=7),
        event("kernel", "k", 70, 30, tid=7),
        mark(100),
    )
    assert found.sync == seconds(20)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("ampere_sgemm_128x64_tn", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_tn_align1>", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128", False),
        ("ampere_bf16_s16816gemm_bf16_128x128", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn", False),
    ],
)
def test_matrix_products_in_full_fp32_are_told_by_their_kernels(name, full):
    found = reduced(mark(0), event("kernel", name, 10, 20, tid=7), mark(100))
    assert found.matmul_seconds == seconds(20)
    assert found.fp32_matmul_seconds == (seconds(20) if full else 0)


def test_a_real_trace_of_the_profiler_is_understood(tmp_path):
    profiler = Profiler(tmp_path / "trace.json")
    model = torch.nn.Linear(64, 64)
    x = torch.randn(64, 64)
    profiler.start()
    for _ in range(3):
        model(x).sum().backward()
        profiler.mark_step()
    found = profiler.stop()
    assert found.steps == 3
    assert {"aten::addmm", "aten::mm"} <= {name for name, _ in found.top}
    assert 0 < found.compute < found.step
    assert 0 <= found.before_forward < found.compute


def test_each_device_has_its_own_time_and_talking_to_each_other_is_no_work():
    def kernel(name, start, length, device):
        return {**event("kernel", name, start, length, tid=7 + device), "args": {"device": device}}

    found = reduced(
        mark(0), kernel("gemm", 0, 30, 0), kernel("gemm", 10, 40, 1), kernel("ncclAllReduce", 50, 20, 1), mark(100)
    )
    assert found.devices == (seconds(30), seconds(40)) and found.compute == seconds(70)


def test_asking_the_driver_for_memory_is_counted():
    found = reduced(
        mark(0), event("kernel", "k", 0, 10, tid=7), event("cuda_runtime", "cudaMalloc", 20, 15),
        event("cuda_runtime", "cudaFree", 60, 5), mark(100),
    )  # fmt: skip
    assert found.allocation == seconds(20)
