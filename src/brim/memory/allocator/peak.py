"""The peak of a trace: how high, what holds it, and where that comes from."""

import bisect
from dataclasses import dataclass

from brim.memory.allocator.allocator import CachingAllocator, replay
from brim.memory.trace.trace import DEATH, Storage, Trace

PARTS = (
    "parameters", "gradients", "optimizer", "average", "activations", "cache", "temporary", "workspace",
    "fragmentation", "context",
)  # fmt: skip
MOST_HOLDERS = 10
OTHERWISE = (0.75, 0.9, 1.1, 1.3)  # factors by which a guessed workspace may be off


@dataclass(frozen=True)
class Holder:
    """One of the largest storages that are alive at the peak."""

    size: int
    kind: str
    module: str
    operator: str
    line: str


@dataclass(frozen=True)
class Peak:
    """Where the peak is and what is alive there; bytes as the allocator hands them out."""

    allocated: int
    reserved: int
    phase: str
    parts: dict[str, int]
    holders: tuple[Holder, ...]


def find_peak(trace: Trace, expandable: bool = False, cap: int | None = None) -> Peak:
    """Replay a trace through the allocator, and look at the moment when most is allocated.

    Under a cap the allocator gives back what is free before it asks for more, so less is reserved; the trace must fit.
    """
    allocator = CachingAllocator(cap, expandable)
    top, at = 0, 0
    for index, (number, size) in enumerate(trace.events):
        if size == DEATH:
            allocator.release(number)
            continue
        allocator.allocate(number, size, trace.storages[number].optional)
        if allocator.allocated > top:
            top, at = allocator.allocated, index
    alive = replay(trace.events[: at + 1], cap, expandable, trace.optional).living()
    kinds = _kinds(trace)
    parts = dict.fromkeys(PARTS, 0)
    for number, size in alive.items():
        parts[kinds[number]] += size
    parts["fragmentation"] = allocator.peak_reserved - top
    return Peak(top, allocator.peak_reserved, _phase_at(trace, at), parts, _holders(trace, alive, kinds))


def reserved_range(trace: Trace, expandable: bool = False) -> tuple[int, int]:
    """The least and the most that is reserved when workspaces of convolutions are other than forecast.

    They are the one thing that is guessed from similar ones, and every size that finds no free block makes a segment:
    reserved memory jumps with them. So the trace is replayed with all of them smaller, and with all of them larger.
    """
    doubtful = [storage.kind == "workspace" and "convolution" in storage.operator for storage in trace.storages]
    found = []
    for factor in (1.0, *OTHERWISE) if any(doubtful) else (1.0,):
        scaled = ((n, int(size * factor) if doubtful[n] and size != DEATH else size) for n, size in trace.events)
        found.append(replay(scaled, expandable=expandable).peak_reserved)
    return min(found), max(found)


def _kinds(trace: Trace) -> list[str]:
    """Which part each storage belongs to.

    What the forward pass made counts as an activation if it outlives that pass, and as temporary if it does not.
    """
    born, died = [0] * len(trace.storages), [len(trace.events)] * len(trace.storages)
    for index, (number, size) in enumerate(trace.events):
        if size == DEATH:
            died[number] = index
        else:
            born[number] = index
    backward = [index for index, phase in trace.marks if phase == "backward"]
    kinds = []
    for number, storage in enumerate(trace.storages):
        next_backward = bisect.bisect_left(backward, born[number])
        outlives = next_backward < len(backward) and died[number] >= backward[next_backward]
        kinds.append(_kind(storage, outlives))
    return kinds


def _kind(storage: Storage, outlives_forward: bool) -> str:
    if storage.kind:
        return {"buffers": "parameters", "batch": "activations"}.get(storage.kind, storage.kind)
    return "activations" if storage.phase == "forward" and outlives_forward else "temporary"


def _phase_at(trace: Trace, at: int) -> str:
    return [phase for index, phase in trace.marks if index <= at][-1]


def _holders(trace: Trace, alive: dict[int, int], kinds: list[str]) -> tuple[Holder, ...]:
    largest = sorted(alive, key=lambda number: -alive[number])[:MOST_HOLDERS]
    return tuple(
        Holder(
            alive[number],
            kinds[number],
            trace.storages[number].module,
            trace.storages[number].operator.removeprefix("aten.").removesuffix(".default"),
            trace.storages[number].line,
        )
        for number in largest
    )
