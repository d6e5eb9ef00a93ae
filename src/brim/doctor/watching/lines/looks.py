"""What looks at a thread say of its time, where other processes want the same cores.

The thread that looks gets a core when another gives one up, such as the thread that it looks at, by waiting: looks then
come far too often while it waits, and hardly ever while it computes. How long it did either is known from the kernel.
"""

from collections.abc import Hashable, Mapping
from typing import TypeVar

from brim.doctor.watching.lines.thread_state import Spent

What = TypeVar("What", bound=Hashable)
# Times that a thread is seen in line for a core where it is once: looks come at such moments.
SEEN_IN_LINE = 2.0


def by_time_spent(
    looks: Mapping[What, float], waiting: Mapping[What, float], spent: Spent, unseen: What, usual: Spent | None = None
) -> dict[What, float]:
    """Seconds for each thing that a thread was seen at, which add up to what it has really spent.

    Args:
        looks: The time between looks, by what was seen.
        waiting: The part of it in which the thread waited.
        spent: What it has really done meanwhile.
        unseen: What its running is, where it was never seen to run.
        usual: What it spends where nobody looks, which takes its time: the seconds are those, where given.

    >>> looks = {"sleep": 0.9, "model": 0.1}  # while the model computed for 0.2 s
    >>> found = by_time_spent(looks, {"sleep": 0.9}, Spent(running=0.2, in_line=0.0, waiting=0.8), "model")
    >>> {what: round(seconds, 3) for what, seconds in found.items()}
    {'sleep': 0.8, 'model': 0.2}
    """
    awake = {what: max(0.0, seconds - waiting.get(what, 0.0)) for what, seconds in looks.items()}
    # Who has waited is in line next, and seen where it waited, though it does not run there.
    most = SEEN_IN_LINE * spent.in_line / max(spent.waiting, 1e-9)
    running = {what: max(0.0, seconds - most * waiting.get(what, 0.0)) for what, seconds in awake.items()}
    if not any(running.values()):
        running = {unseen: 1.0}
    total = usual or spent
    parts = (_share(waiting), total.waiting), (_share(running), total.running), (_share(awake), total.in_line)
    names = {**looks, unseen: 0.0}
    return {what: sum(share.get(what, 0.0) * seconds for share, seconds in parts) for what in names}


def _share(seconds: Mapping[What, float]) -> dict[What, float]:
    """Each of some numbers by their sum."""
    total = sum(seconds.values())
    return {what: part / total for what, part in seconds.items()} if total else {}
