"""The recorder: which storages come to life, when they die, and what is known about them."""

import sys
from pathlib import Path

import torch
from torch import nn

from brim.hardware.cards import H200
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.kernels.scope import Scope
from brim.memory.trace.trace import DEATH, Recorder, Trace
from brim.user_line import line_of_job

KIB = 1 << 10


def record(run) -> Trace:
    """The trace of a function of the recorder, its tensors fake."""
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        recorder.enter("forward")
        recorder.watching = True
        run(recorder)
        return recorder.finish()


def happened(trace: Trace) -> list[str]:
    """b0 for a birth, d0 for a death."""
    return [f"{'d' if size == DEATH else 'b'}{number}" for number, size in trace.events]


def test_a_storage_is_born_with_its_operator_and_dies_with_its_last_tensor() -> None:
    def run(_) -> None:
        a = torch.zeros(256)
        b = a + 1
        del a
        view = b[:3]
        del b, view

    trace = record(run)
    assert happened(trace) == ["b0", "b1", "d0", "d1"]
    assert [(storage.size, storage.operator) for storage in trace.storages] == [
        (KIB, "aten.zeros.default"), (KIB, "aten.add.Tensor"),
    ]  # fmt: skip


def test_views_and_work_in_place_make_no_storage() -> None:
    def run(_) -> None:
        a = torch.zeros(4, 64)
        a.view(-1).t()
        a.add_(1).transpose(0, 1).relu_()
        a[1:3, ::2].expand(5, 2, 32)

    assert happened(record(run)) == ["b0", "d0"]


def test_nothing_is_written_down_while_nobody_watches() -> None:
    def run(recorder: Recorder) -> None:
        with recorder.paused():
            a = torch.zeros(4)
        torch.ones(4)
        del a

    trace = record(run)
    assert [storage.operator for storage in trace.storages] == ["aten.ones.default"]


def test_phases_are_marked() -> None:
    def run(recorder: Recorder) -> None:
        a = torch.zeros(4)
        recorder.enter("backward")
        b = a + a
        del a, b

    trace = record(run)
    assert trace.marks == [(0, "forward"), (1, "backward")]
    assert [storage.phase for storage in trace.storages] == ["forward", "backward"]


def test_modules_are_remembered() -> None:
    def run(recorder: Recorder) -> None:
        model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
        recorder.watch_modules(model)
        (model(torch.zeros(8)) + 1).sum()

    modules = {storage.operator: storage.module for storage in record(run).storages}
    assert modules["aten.relu.default"] == "0"
    assert modules["aten.tanh.default"] == "1.0"
    assert modules["aten.add.Tensor"] == ""


def test_the_line_of_the_user_is_kept_for_large_storages() -> None:
    def run(_) -> None:
        torch.zeros(1 << 19)
        torch.zeros(1 << 10)

    large, small = record(run).storages
    assert large.line == f"{__file__}:{run.__code__.co_firstlineno + 1}"
    assert small.line == ""


def test_a_tensor_can_be_placed_and_named() -> None:
    def run(recorder: Recorder) -> None:
        with recorder.paused():
            weight, other = torch.zeros(256), torch.zeros(2)
        recorder.record_copy(weight, "parameters", "head.weight")
        made = weight * 2
        recorder.label(made, "optimizer", "head.weight")
        recorder.label(other, "optimizer", "never seen")

    weight, made = record(run).storages
    assert (weight.kind, weight.module, weight.size) == ("parameters", "head.weight", KIB)
    assert (made.kind, made.module) == ("optimizer", "head.weight")


def test_tensors_placed_together_share_one_storage() -> None:
    def run(recorder: Recorder) -> None:
        with recorder.paused():
            parts = [torch.zeros(256), torch.zeros(512)]
        for part in parts:
            recorder.record_copy(part, "parameters")
        recorder.record_flattened(parts, "body")

    trace = record(run)
    assert happened(trace)[:5] == ["b0", "b1", "b2", "d0", "d1"]
    assert trace.storages[2].size == 3 * KIB


def test_what_is_made_once_is_made_once() -> None:
    def run(recorder: Recorder) -> None:
        recorder.allocate_once("state", 100)
        recorder.allocate_once("state", 100)
        recorder.allocate_once("other", 50)

    assert [(storage.size, storage.kind) for storage in record(run).storages] == [(100, "workspace"), (50, "workspace")]


def test_a_scope_is_played_in_its_order() -> None:
    def run(recorder: Recorder) -> None:
        with recorder.paused():
            first, second = torch.zeros(2), torch.zeros(3)
        scope = Scope()
        space = scope.allocate(99)
        scope.output(1)
        scope.free(space)
        recorder.record_call(scope, "an operator", [first, second, None])

    trace = record(run)
    assert [storage.size for storage in trace.storages] == [8, 99, 12]  # the unmentioned output comes first
    assert happened(trace)[:4] == ["b0", "b1", "b2", "d1"]


def test_the_first_product_brings_a_workspace_to_life() -> None:
    def run(recorder: Recorder) -> None:
        a = torch.zeros(4, 4)
        b = a @ a
        c = a @ b
        del a, b, c

    products = [s for s in record(run).storages if s.operator == "aten.mm.default"]
    assert sorted((s.size >> 20, s.kind) for s in products) == [(0, ""), (0, ""), (32, "workspace")]
    assert products[-1].kind == ""


def test_batch_norm_is_noticed_where_it_trains() -> None:
    def has_batch_norm(model: nn.Module) -> bool:
        return record(lambda recorder: recorder.watch_modules(model)).has_batch_norm

    assert has_batch_norm(nn.Sequential(nn.BatchNorm1d(3)))
    assert not has_batch_norm(nn.Sequential(nn.BatchNorm1d(3).eval(), nn.LayerNorm(3)))


def test_a_note_is_made_once() -> None:
    trace = Trace()
    trace.note("one")
    trace.note("one")
    assert trace.notes == ["one"]


def test_what_dies_after_the_end_is_not_written_down() -> None:
    kept = []
    trace = record(lambda _: kept.append(torch.zeros(4)))
    kept.clear()
    assert happened(trace) == ["b0"]


def test_the_line_of_a_traceback_is_the_innermost_that_is_the_users() -> None:
    try:
        nn.Linear(3, 3)(torch.zeros(2, 2))
    except RuntimeError:
        at = line_of_job(sys.exc_info()[2])
    assert at.startswith(f"{Path(__file__)}:")
