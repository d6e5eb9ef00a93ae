"""From the events of some steps to seconds a step: on a device that works beside the host, or on the host itself."""

from collections import Counter
from statistics import median

from brim.doctor.observation import Profile
from brim.doctor.trace.events import Events, Span, is_pageable, is_to_device, is_to_host
from brim.intervals import Interval, covers, difference, intersection, length, union

TOP = 8  # operators or kernels that are named
# An idle device that the host had waited for: the wait may end some microseconds after the device's last work.
AFTER_SYNC = 20e-6
# Matrix products and convolutions by what their kernels are called; those on tensor cores say so.
MATMUL = ("gemm", "conv", "cutlass", "wgrad", "dgrad", "xmma", "cudnn", "nvjet", "matmul")
TENSOR_CORES = ("tf32", "bf16", "f16", "h16", "s16816", "s1688", "tensorop", "fp16", "half", "hmma", "e4m3", "e5m2")
FP32_CORES = ("sgemm", "ffma", "fp32", "f32f32_f32f32_f32", "simt")


def reduce_events(events: Events) -> Profile | None:
    """What the steps between the first and the last mark were made of; None where there are fewer than two marks."""
    if len(events.steps) < 2:
        return None
    if events.kernels:
        return _device_profile(events)
    return _host_profile(events)


def _host_profile(events: Events) -> Profile:
    """Compute is what operators took themselves, less what calling one costs that does nothing."""
    window, steps = (events.steps[0], events.steps[-1]), len(events.steps) - 1
    data = union(span.interval for span in events.data)
    floor = _floor(events)
    operators = [
        span for span in _own_times(events.operators) if _inside(span, window) and not covers(data, span.start)
    ]
    ahead = _before_forward(events)
    return Profile(
        steps=steps,
        step=length([window]) / steps,
        operators=len(operators) / steps,
        compute=sum(max(0.0, span.seconds - floor) for span in operators) / steps,
        before_forward=sum(max(0.0, s.seconds - floor) for s in operators if covers(ahead, s.start)) / steps,
        data=length(intersection(data, [window])) / steps,
        dispatch=sum(min(floor, span.seconds) for span in operators) / steps,
        top=_top(operators, steps),
    )


def _device_profile(events: Events) -> Profile:
    """Idle time of the device goes to what the host did meanwhile: waiting for data, waiting for it, or neither."""
    window, steps = _device_window(events)
    kernels = [span for span in events.kernels if _inside(span, window)]
    copies = [span for span in events.copies if _inside(span, window)]
    busy = intersection(union(span.interval for span in kernels), [window])
    to_device = union(span.interval for span in copies if is_to_device(span))
    copying = difference(intersection(to_device, [window]), busy)
    others = union(span.interval for span in copies if not is_to_device(span) and not is_to_host(span))
    busy = union([*busy, *difference(intersection(others, [window]), copying)])
    to_host = union(span.interval for span in copies if is_to_host(span))
    idle = difference([window], union([*busy, *copying]))
    data = union(span.interval for span in events.data)
    waiting_for_data = intersection(idle, data)
    rest = difference(idle, data)
    # A copy ahead of time does not end what a wait began: the device has no work before a kernel runs.
    without_kernels = difference(difference([window], busy), data)
    by_sync = difference(_idle_by_sync(without_kernels, events.syncs), copying)
    sync = union([*intersection(rest, to_host), *by_sync])
    matmuls = [span for span in kernels if any(word in span.name.lower() for word in MATMUL)]
    return Profile(
        steps=steps,
        step=length([window]) / steps,
        operators=sum(_inside(span, window) for span in _own_times(events.operators)) / steps,
        compute=length(busy) / steps,
        copy=length(copying) / steps,
        copy_all=length(intersection(to_device, [window])) / steps,
        data=length(waiting_for_data) / steps,
        sync=length(sync) / steps,
        launch=length(difference(rest, sync)) / steps,
        kernels=len(kernels) / steps,
        kernel_seconds=sum(span.seconds for span in kernels) / steps,
        pageable_copies=sum(is_pageable(span) and is_to_device(span) for span in copies) / steps,
        syncs=sum(_inside(span, window) for span in events.syncs) / steps,
        matmul_seconds=sum(span.seconds for span in matmuls) / steps,
        fp32_matmul_seconds=sum(span.seconds for span in matmuls if _is_fp32(span.name.lower())) / steps,
        allocation=length(intersection(union(span.interval for span in events.allocations), [window])) / steps,
        devices=_busy_by_device(kernels, window, steps),
        top=_top(kernels, steps),
    )


def _busy_by_device(kernels: list[Span], window: Interval, steps: int) -> tuple[float, ...]:
    """Seconds a step in which each device computes; what devices tell each other is no work of theirs."""
    devices = sorted({span.device for span in kernels})
    own = [span for span in kernels if "nccl" not in span.name.lower()]
    busy = (union(span.interval for span in own if span.device == device) for device in devices)
    return tuple(length(intersection(one, [window])) / steps for one in busy)


def _is_fp32(kernel: str) -> bool:
    if any(word in kernel for word in FP32_CORES):
        return True
    return not any(word in kernel for word in TENSOR_CORES)


def _idle_by_sync(idle: list[Interval], syncs: list[Span]) -> list[Interval]:
    """Idle time in which the host waits for the device, and the idle time right after such a wait.

    A wait ends when the device is done. It stays idle until the host has launched something: without the wait, that
    would have been queued already.
    """
    found: list[Interval] = []
    waits = union(span.interval for span in syncs)
    for start, end in idle:
        inside = intersection([(start, end)], waits)
        found.extend(inside)
        if _ending_near(waits, start, end):
            found.append((start, end))
    return union(found)


def _ending_near(waits: list[Interval], start: float, end: float) -> list[Interval]:
    """Waits that end while the device is idle, or just before, and that began before it was."""
    return [wait for wait in waits if start - AFTER_SYNC <= wait[1] <= end and wait[0] <= start + AFTER_SYNC]


def _device_window(events: Events) -> tuple[Interval, int]:
    """From the first mark, at which the device was idle, to when it was again: the host may be many steps ahead."""
    end = events.steps[-1] if events.end is None else events.end
    return (events.steps[0], end), len(events.steps) - 1


def _inside(span: Span, window: Interval) -> bool:
    return window[0] <= span.start < window[1]


def _floor(events: Events) -> float:
    """What an operator costs that does nothing, as the profiler sees it: the doctor called one between two marks."""
    areas = union(span.interval for span in events.floors)
    inside = [span.seconds for span in _own_times(events.operators) if covers(areas, span.start)]
    return median(inside) if inside else 0.0


def _before_forward(events: Events) -> list[Interval]:
    """From the end of each step to the next forward pass."""
    found: list[Interval] = []
    for start, end in zip(events.steps, events.steps[1:], strict=False):
        first = next((moment for moment in events.forwards if start <= moment < end), None)
        if first is not None:
            found.append((start, first))
    return found


def _own_times(spans: list[Span]) -> list[Span]:
    """Operators with the time that is their own, not that of operators which they call: shorter by as much.

    What the autograd engine marks around operators is no operator.
    """
    found: list[Span] = []
    by_thread: dict[int, list[Span]] = {}
    for span in spans:
        if "::" in span.name and not span.name.startswith("autograd::"):
            by_thread.setdefault(span.thread, []).append(span)
    for thread in by_thread.values():
        thread.sort(key=lambda span: (span.start, -span.end))
        open_spans: list[tuple[Span, float]] = []  # with the time of those within
        for span in thread:
            while open_spans and open_spans[-1][0].end <= span.start:
                found.append(_shortened(*open_spans.pop()))
            if open_spans:
                outer, inside = open_spans[-1]
                open_spans[-1] = (outer, inside + span.seconds)
            open_spans.append((span, 0.0))
        found += [_shortened(*each) for each in open_spans]
    return found


def _shortened(span: Span, inside: float) -> Span:
    return Span(span.name, span.start, max(span.start, span.end - inside), span.thread)


def _top(spans: list[Span], steps: int) -> tuple[tuple[str, float], ...]:
    seconds: Counter[str] = Counter()
    for span in spans:
        seconds[span.name] += span.seconds  # type: ignore[assignment]
    return tuple((name, total / steps) for name, total in seconds.most_common(TOP))
