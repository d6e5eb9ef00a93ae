"""The events of a step at any size of a micro-batch, from two that were traced.

As `TraceFamily.line_through`, for steps that also repeat something more often the larger they are (logits in chunks):
what they do alike at both ends of a phase grows on straight lines. What is between is taken from the larger one, in
sizes that grow from what the smaller one has between to what the larger one has: the storages that repetitions leave
behind add up to a straight line too, though each of them comes whole or not at all. A repetition that frees all of its
own has its full size at the ends of the phase.
"""

from brim.memory.planning.family import Line
from brim.memory.trace.trace import DEATH, Trace


def line_through(small: Trace, large: Trace, low: int, high: int) -> Line:
    """The line through the traces of a job at two sizes."""
    dies = {number for number, size in large.events if size == DEATH}
    events: list[tuple[int, float, float | None]] = []
    smaller = _phases(small)
    for place, indices in enumerate(_phases(large)):
        own = smaller[place] if place < len(smaller) else []
        partners = _partners(small, own, large, indices)
        share = _share_between(small, own, large, indices, partners)
        for index in indices:
            number, size = large.events[index]
            if size == DEATH:
                events.append((number, 0.0, None))
            elif large.storages[number].kind == "workspace":
                events.append((number, 0.0, size / high) if number in dies else (number, size, 0.0))
            else:
                at_low = small.events[partners[index]][1] if index in partners else share * size
                growth = (size - at_low) / (high - low)
                events.append((number, size - growth * high, growth))
    return Line(events)


def _phases(trace: Trace) -> list[list[int]]:
    """The indices of the events of each phase, and before the first of those that come before any phase."""
    starts = [0, *(start for start, _ in trace.marks)]
    return [list(range(start, stop)) for start, stop in zip(starts, [*starts[1:], len(trace.events)], strict=True)]


def _share_between(
    small: Trace, smaller: list[int], large: Trace, larger: list[int], partners: dict[int, int]
) -> float:
    """Bytes between the ends of a phase at the smaller size, as a share of those at the larger one."""
    left, right = _born(small, smaller, set(partners.values())), _born(large, larger, set(partners))
    return left / right if right else 0.0


def _born(trace: Trace, indices: list[int], but_for: set[int]) -> int:
    """Bytes of the storages that come to life in these events, kernels' own and those ``but_for`` left out."""
    births = [trace.events[index] for index in indices if index not in but_for]
    return sum(size for number, size in births if size != DEATH and trace.storages[number].kind != "workspace")


def _partners(small: Trace, smaller: list[int], large: Trace, larger: list[int]) -> dict[int, int]:
    """For events of the larger phase the same ones of the smaller: from its beginning on, and from its end back."""
    left = [index for index in smaller if small.storages[small.events[index][0]].kind != "workspace"]
    right = [index for index in larger if large.storages[large.events[index][0]].kind != "workspace"]
    same = 0
    while same < min(len(left), len(right)) and _are_of_one_operator(small, left[same], large, right[same]):
        same += 1
    found = dict(zip(right[:same], left[:same], strict=True))
    behind = 0
    while behind < min(len(left), len(right)) - same and _are_of_one_operator(
        small, left[-1 - behind], large, right[-1 - behind]
    ):
        behind += 1
        found[right[-behind]] = left[-behind]
    return found


def _are_of_one_operator(small: Trace, left: int, large: Trace, right: int) -> bool:
    (number, size), (other, other_size) = small.events[left], large.events[right]
    same_operator = small.storages[number].operator == large.storages[other].operator
    return same_operator and (size == DEATH) == (other_size == DEATH)
