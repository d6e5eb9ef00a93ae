import json

import pytest

from brim.doctor.trace.events import STEP, read_events, sort_events


def event(cat, name, start, length, **more):
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length, "tid": 1, **more}


def test_events_are_sorted_by_kind_and_told_in_seconds():
    found = sort_events(
        [
            event("cpu_op", "aten::mm", 10, 5),
            event("kernel", "sgemm", 20, 5),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 30, 5),
            event("gpu_memset", "Memset", 40, 5),
            event("cuda_runtime", "cudaStreamSynchronize", 50, 5),
            event("cuda_runtime", "cudaMemcpyAsync", 60, 5),
            event("user_annotation", STEP, 70, 0),
            event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 80, 5),
            event("gpu_user_annotation", STEP, 90, 1),
            {"ph": "M", "name": "process_name"},
        ]
    )
    assert [span.name for span in found.operators] == ["aten::mm"]
    assert [span.name for span in found.kernels] == ["sgemm", "Memset"]
    assert [(span.start, span.end) for span in found.copies] == [pytest.approx((3e-5, 3.5e-5))]
    assert [span.name for span in found.syncs] == ["cudaStreamSynchronize"]
    assert found.steps == [pytest.approx(7e-5)] and len(found.data) == 1


def test_a_trace_is_read_from_its_file(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [event("cpu_op", "aten::add", 0, 1)]}))
    assert len(read_events(tmp_path / "trace.json").operators) == 1
