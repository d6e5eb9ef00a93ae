"""The events of a step with some of its blocks computed again, from those of the step without: no new trace.

What such a block made in the forward pass, but for what it hands on, dies when the block is through, and comes to life
again in the backward pass right before the first of it is used. Copies of weights in another number format, which
autocast keeps, live until the forward pass ends; what a block leaves in an object that it was handed, a cache say,
lives as long as that object is needed to compute blocks again. A choice that was found this way is looked at with a
trace of its own before it is believed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from brim.memory.planning.family import Events
from brim.memory.trace.trace import DEATH


@dataclass(frozen=True)
class Passes:
    """Where a forward pass and its backward pass are in the events: from, to, to."""

    forward: int
    backward: int
    end: int


def passes_in(marks: Sequence[tuple[int, str]], events: int) -> list[Passes]:
    """All of a trace."""
    found = []
    for place, (start, phase) in enumerate(marks[:-1]):
        following, name = marks[place + 1]
        if phase == "forward" and name == "backward":
            end = marks[place + 2][0] if place + 2 < len(marks) else events
            found.append(Passes(start, following, end))
    return found


@dataclass(frozen=True)
class BlockEvents:
    """What one block does in one pass: its events in the forward pass, and what of it the backward pass waits for."""

    events: Events
    last: int  # the index of its last birth
    saved: dict[int, int]  # number: the index of its death in the backward pass


def blocks_in(events: Events, passes: Passes, owner: Sequence[int], outputs: Collection[int]) -> dict[int, BlockEvents]:
    """By the place of the block."""
    own: dict[int, list[int]] = {}
    for index in range(passes.forward, passes.backward):
        number = events[index][0]
        if number < len(owner) and owner[number] >= 0:
            own.setdefault(owner[number], []).append(index)
    dies = {
        events[index][0]: index for index in range(passes.backward, passes.end) if events[index][1] == DEATH
    }  # fmt: skip
    found = {}
    for block, indices in own.items():
        births = [index for index in indices if events[index][1] != DEATH]
        if births:
            born = [events[index][0] for index in births]
            saved = {number: dies[number] for number in born if number in dies and number not in outputs}
            until = births[-1]
            found[block] = BlockEvents([events[index] for index in indices if index <= until], until, saved)
    return found


def recomputed_events(
    events: Events,
    passes: Sequence[Passes],
    owner: Sequence[int],
    outputs: Collection[int],
    chosen: Collection[int],
    kept: Collection[int] = (),
    left: Collection[int] = (),
) -> Events:
    """The events with the chosen blocks computed again.

    ``kept``: storages that live until the forward pass ends. ``left``: those that live until the backward pass ends.
    """
    if not chosen:
        return events
    before: dict[int, Events] = {}  # what is put in before the event at an index
    renamed: dict[int, int] = {}  # the index of a death, and the number that dies there instead
    more = added_to_numbers(events)
    for of_pass in passes:
        for block, made in blocks_in(events, of_pass, owner, outputs).items():
            if block not in chosen or not made.saved:
                continue
            for number in made.saved:
                at = of_pass.backward if number in kept else of_pass.end if number in left else made.last + 1
                before.setdefault(at, []).append((number, DEATH))
            born = {number for number, size in made.events if size != DEATH}
            again = [(number + more, size) for number, size in made.events if number in born]
            alive = born - {number for number, size in made.events if size == DEATH}
            again += [(number + more, DEATH) for number in sorted(alive - set(made.saved))]
            renamed |= {index: number + more for number, index in made.saved.items()}
            first = _before_births(events, min(made.saved.values()), of_pass.backward)
            before.setdefault(first, []).extend(again)
    changed: Events = []
    for index, (number, size) in enumerate(events):
        changed += before.get(index, ())
        changed.append((renamed.get(index, number), size))
    return changed + before.get(len(events), [])


def added_to_numbers(events: Events) -> int:
    """What is added to the number of a storage that comes to life for the second time."""
    return 1 + max(number for number, _ in events)


def _before_births(events: Events, index: int, least: int) -> int:
    """The operator that first uses something has made its result by then: before that."""
    while index > least and events[index - 1][1] != DEATH:
        index -= 1
    return index


def saved_bytes(
    events: Events, passes: Sequence[Passes], owner: Sequence[int], outputs: Collection[int], blocks: int
) -> list[int]:
    """What each block holds from its forward pass to its backward pass; of the passes of a step the last one's."""
    if not passes:
        return [0] * blocks
    sizes = {number: size for number, size in events if size != DEATH}
    found = blocks_in(events, passes[-1], owner, outputs)
    return [sum(sizes[number] for number in found[b].saved) if b in found else 0 for b in range(blocks)]


def live_peak(events: Events, optional: Collection[int] = ()) -> int:
    """The most bytes alive at once, as the allocator rounds them: the least that any allocator needs.

    ``optional``: the storages that are left out where there is no room for them.
    """
    alive, most, sizes = 0, 0, dict[int, int]()
    for number, size in events:
        if size == DEATH:
            alive -= sizes.pop(number, 0)
        elif number not in optional:
            sizes[number] = rounded = max(512, -(-size // 512) * 512)
            alive += rounded
            most = max(most, alive)
    return most
