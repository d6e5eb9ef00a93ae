"""Why a forecast of memory is off: what is alive at the measured peak beside what is alive at the forecast one.

    python benchmarks/memory_gaps.py p_patchtst p_deeplabv3_resnet50 p_wav2vec2 unet     # on a GPU; cases by word
    python benchmarks/memory_gaps.py --convolutions p_deeplabv3_resnet50                 # what each convolution takes

A case runs as `memory_truth.py` runs it, in a process of its own, with torch's history of the allocator on. Sizes that
are alive at one peak and not at the other are listed with the line of Python that asked for them, or with the operator
that the forecast saw. ``--convolutions`` calls every convolution of a case alone, forward and both gradients, and
prints what each took for itself beside what the forecast says: rows for the table of measured convolutions.
"""

import argparse
import sys
from collections import Counter
from typing import Any

import torch
from memory_truth import _in_child, train
from memory_zoo import CASES, JOBS, NEW, OPTIMIZERS, Case
from torch.utils._python_dispatch import TorchDispatchMode

from brim.hardware.cards import card_of
from brim.hardware.inventory import inventory
from brim.memory.allocator.allocator import CachingAllocator, rounded
from brim.memory.forecast import Forecast, forecast_trace, make_job, make_setting, trace_on
from brim.memory.kernels import RULES, Call, Scope
from brim.memory.trace.trace import DEATH, Trace

MIB = 2**20
SMALLEST = 1 << 16  # bytes of a size that is listed
MOST = 25
HISTORY = 2_000_000


def at_measured_peak(case: Case) -> dict[str, Any]:
    """Sizes alive at the peak with the lines that asked for them; run in a process of its own."""
    torch.cuda.memory._record_memory_history(max_entries=HISTORY, stacks="python")
    train(case)
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    alive: dict[int, tuple[int, str]] = {}
    now = most = 0
    kept: list[tuple[int, str]] = []
    for event in events:
        if event["action"] == "alloc":
            alive[event["addr"]] = (event["size"], line_of(event.get("frames") or []))
            now += event["size"]
            if now > most:
                most, kept = now, list(alive.values())
        elif event["action"] == "free_completed" and event["addr"] in alive:
            now -= alive.pop(event["addr"])[0]
    return {
        "sizes": kept,
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "segments": sorted(segment["total_size"] for segment in torch.cuda.memory._snapshot()["segments"]),
    }


def line_of(frames: list[dict[str, Any]]) -> str:
    """The innermost line outside of torch's modules, as far as Python ran."""
    for frame in frames:
        if "/torch/" not in frame["filename"] and frame["filename"] not in ("??", ""):
            return f"{frame['filename'].rpartition('/')[2]}:{frame['line']} {frame['name']}"
    return "" if not frames else f"{frames[0]['filename'].rpartition('/')[2]}:{frames[0]['line']}"


def at_forecast_peak(case: Case) -> tuple[Forecast, list[tuple[int, str]]]:
    """The forecast, and the sizes alive at its peak with their operators."""
    zoo = JOBS[case.job]
    job = make_job(zoo.model, zoo.batch, zoo.loss, OPTIMIZERS[case.optimizer], case.precision)
    setting = make_setting(card_of(inventory().gpus[0]), None, False)
    trace = trace_on(job, case.batch_size, setting)
    made = forecast_trace(trace, job, case.batch_size, setting)
    return made, alive_at_peak(trace)


def alive_at_peak(trace: Trace) -> list[tuple[int, str]]:
    allocator, alive, kept, most = CachingAllocator(), dict[int, tuple[int, str]](), list[tuple[int, str]](), 0
    for number, size in trace.events:
        if size == DEATH:
            allocator.release(number)
            alive.pop(number, None)
            continue
        allocator.allocate(number, size)
        storage = trace.storages[number]
        alive[number] = (rounded(size), f"{storage.kind} {storage.operator} {storage.module}".strip())
        if allocator.allocated > most:
            most, kept = allocator.allocated, list(alive.values())
    return kept


def show_difference(title: str, ours: list[tuple[int, str]], theirs: list[tuple[int, str]]) -> None:
    """Sizes that come more often in the first list, the largest sums first."""
    more = Counter(rounded(size) for size, _ in ours) - Counter(rounded(size) for size, _ in theirs)
    print(f"  {title}: {sum(size * count for size, count in more.items()) / MIB:.1f} MiB")
    for size, count in sorted(more.items(), key=lambda item: -item[0] * item[1])[:MOST]:
        if size >= SMALLEST:
            lines = Counter(line for other, line in ours if rounded(other) == size).most_common(3)
            told = "; ".join(f"{line or '?'} x{times}" for line, times in lines)
            print(f"    {count:4d} x {size / MIB:9.3f} MiB  {told}")


def compare(case: Case) -> None:
    measured = _in_child((at_measured_peak, case))
    if "error" in measured:
        print(f"{case.name}: {measured['error']}")
        return
    made, alive = at_forecast_peak(case)
    print(
        f"{case.name}: allocated {measured['allocated'] / MIB:.1f} MiB, forecast {made.allocated / MIB:.1f} "
        f"({made.allocated / measured['allocated'] - 1:+.2%}); reserved {measured['reserved'] / MIB:.1f}, forecast "
        f"{made.reserved / MIB:.1f} ({made.reserved / measured['reserved'] - 1:+.2%}); peak in the {made.phase}"
    )
    show_difference("only measured", [tuple(pair) for pair in measured["sizes"]], alive)
    show_difference("only forecast", alive, [tuple(pair) for pair in measured["sizes"]])
    sizes = Counter(measured["segments"]).most_common(12)
    print("  segments: " + ", ".join(f"{count} x {size / MIB:.0f}" for size, count in sizes), flush=True)


class Convolutions(TorchDispatchMode):
    """Calls every convolution alone once more, for what it takes beside its results."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, tuple[str, float, float]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = function(*args, **(kwargs or {})), str(function)
        if name.startswith("aten.convolution"):
            key = " ".join(str(tuple(a.shape)) if isinstance(a, torch.Tensor) else str(a) for a in args)
            if f"{name} {key}" not in self.rows:
                self.rows[f"{name} {key}"] = (name, *self._taken(function, args))
        return result

    def _taken(self, function: Any, args: Any) -> tuple[float, float]:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        made = function(*args)
        peak = torch.cuda.max_memory_allocated() - before
        outputs = tuple(made) if isinstance(made, tuple | list) else (made,)
        return peak / MIB, _by_rule(str(function), args, outputs) / MIB


def _by_rule(name: str, args: Any, outputs: tuple[Any, ...]) -> int:
    """The peak inside the call, as the rule says."""
    scope = Scope()
    RULES[name](Call(name, args, {}, outputs, card_of(inventory().gpus[0])), scope)
    scope.close()
    said = {step.output for step in scope.steps}
    now = sum(rounded(o.nbytes) for i, o in enumerate(outputs) if o is not None and i not in said)
    most, taken = now, dict[int | None, int]()
    for step in scope.steps:
        if step.output is not None:
            now += rounded(outputs[step.output].nbytes)
        elif step.size >= 0:
            taken[step.temporary] = rounded(step.size)
            now += taken[step.temporary]
        else:
            now -= taken.pop(step.temporary)
        most = max(most, now)
    return most


def convolutions_of(case: Case) -> dict[str, Any]:
    """In a process of its own, with the precision of the case."""
    with Convolutions() as seen:
        train(case)
    return {"rows": list(seen.rows.items())}


def show_convolutions(case: Case) -> None:
    found = _in_child((convolutions_of, case))
    rows = sorted(found.get("rows", []), key=lambda row: -abs(row[1][1] - row[1][2]))
    print(f"{case.name}: {found.get('error', '')}")
    for key, (_, measured, forecast) in rows:
        if abs(measured - forecast) > 0.5:
            print(f"  {measured:9.2f} MiB, forecast {forecast:9.2f}  {key}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="+", help="words in the names of cases, such as p_patchtst/16/adamw/fp32")
    parser.add_argument("--convolutions", action="store_true", help="what each convolution takes, call by call")
    options = parser.parse_args()
    if not torch.cuda.device_count():
        sys.exit("memory_gaps.py measures on a GPU, and there is none here")
    for case in (*CASES, *NEW):
        if any(case.name.startswith(word) for word in options.words):
            (show_convolutions if options.convolutions else compare)(case)


if __name__ == "__main__":
    main()
