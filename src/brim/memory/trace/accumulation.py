"""Gradients that meet in the backward pass are added in place on a card, and beside each other in a trace.

See `brim.memory.kernels.elementwise` for why, and for the hint that it leaves behind such a sum.
"""

from dataclasses import replace

from brim.memory.kernels.elementwise import HINT, SUM
from brim.memory.trace.trace import DEATH, Storage, Trace


def sums_in_place(trace: Trace) -> Trace:
    """The trace without the storages of sums that take over that of their first term, and without the hints."""
    events: list[tuple[int, int]] = []
    storages = list(trace.storages)
    taken_over: dict[int, int] = {}  # a sum, and the storage that it lies in
    gone: set[int] = set()  # hints, and terms whose death does not happen
    new_index = []
    newest_of_size: dict[int, int] = {}
    for index, (number, size) in enumerate(trace.events):
        new_index.append(len(events))
        if size == DEATH:
            if number not in gone:
                events.append((taken_over.get(number, number), DEATH))
            continue
        if _is_hint(trace, index):
            gone.add(number)
            continue
        term = _taken_over(trace, index, newest_of_size.get(size))
        newest_of_size[size] = number
        if term is None:
            events.append((number, size))
            continue
        gone.add(term)
        taken_over[number] = taken_over.get(term, term)
        storages[taken_over[number]] = _named_after(storages[taken_over[number]], storages[number])
    new_index.append(len(events))
    marks = [(new_index[index], phase) for index, phase in trace.marks]
    return replace(trace, storages=storages, events=events, marks=marks)


def _is_hint(trace: Trace, index: int) -> bool:
    if index >= len(trace.events):
        return False
    number, size = trace.events[index]
    return size == HINT and trace.storages[number].operator == SUM and trace.storages[number].kind == "workspace"


def _taken_over(trace: Trace, index: int, newest_of_the_size: int | None) -> int | None:
    """The term whose storage a sum takes over, if what comes to life here is such a sum.

    Its first term dies right after it, and before the second. Where only one dies, and it is the newest of that size,
    it is the second: the gradient that has just come.
    """
    number, size = trace.events[index]
    if not _is_sum_of_gradients(trace.storages[number]) or not _is_hint(trace, index + 1):
        return None
    dying = []
    for dead, what in trace.events[index + 3 : index + 5]:  # behind the birth and the death of the hint
        if what != DEATH or dead == number or trace.storages[dead].size != size:
            break
        dying.append(dead)
    if not dying or dying == [newest_of_the_size]:
        return None
    return dying[0]


def _is_sum_of_gradients(storage: Storage) -> bool:
    """Autograd's own sums belong to no module, but for those of a parameter; a recomputed forward runs in modules."""
    return storage.phase == "backward" and (storage.module == "" or storage.kind == "gradients")


def _named_after(term: Storage, total: Storage) -> Storage:
    return replace(term, kind=total.kind, module=total.module) if total.kind else term
