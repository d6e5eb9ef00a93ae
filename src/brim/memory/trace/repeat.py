"""A step that does what the step before it did, without running it."""

from brim.memory.trace.trace import DEATH, Trace


def repeat_last_step(trace: Trace) -> bool:
    """Append the last step of a trace to it once more; False, and nothing appended, where it is not that simple.

    Storages of the step are born anew. What it freed of the step before it (gradients, the batch, the loss) the new
    step frees of the last one: both lists are in the order of birth, and must match in size.
    """
    starts = [index for index, phase in trace.marks if phase == "batch"]
    steps = sum(phase == "optimizer" for _, phase in trace.marks)
    if steps < 2 or len(starts) % steps:
        return False
    start = starts[-len(starts) // steps]
    first_mark = [place for place, (_, phase) in enumerate(trace.marks) if phase == "batch"][-len(starts) // steps]
    step = trace.events[start:]
    born = {number for number, size in step if size != DEATH}
    died = {number for number, size in step if size == DEATH}
    freed, left = sorted(died - born), sorted(born - died)
    if [trace.storages[n].size for n in freed] != [trace.storages[n].size for n in left]:
        return False
    again = dict(zip(freed, left, strict=True))
    for number in sorted(born):
        again[number] = len(trace.storages)
        trace.storages.append(trace.storages[number])
    marks = [(index - start + len(trace.events), phase) for index, phase in trace.marks[first_mark:]]
    trace.marks += marks
    trace.events += [(again[number], size) for number, size in step]
    return True
