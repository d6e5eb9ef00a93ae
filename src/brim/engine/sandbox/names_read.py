"""Which names code reads, and which it only writes to: a list of losses for a plot, the last output to look at.

Found in the instructions, not by running them. Nothing depends on what nobody reads.
"""

import dis
from collections.abc import Iterable
from types import CodeType

LOADS = frozenset(("LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_ATTR", "LOAD_METHOD"))
ADDS = frozenset(("append", "appendleft", "extend", "add", "insert"))  # what fills a container without reading it


def names_read(codes: Iterable[CodeType]) -> frozenset[str]:
    """Globals, variables of closures and attributes; texts count as well, for ``getattr`` may read by them.

    >>> def loss(model, batch):
    ...     model.last = model(batch)
    ...     model.past.append(model.last)
    ...     return model.weight
    >>> sorted(names_read([loss.__code__]) & {"last", "past", "weight"})
    ['last', 'weight']
    """
    found: set[str] = set()
    for code in codes:
        found |= _read_in(code)
        nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        found |= names_read(nested) | {constant for constant in code.co_consts if isinstance(constant, str)}
    return frozenset(found)


def _read_in(code: CodeType) -> set[str]:
    steps = list(dis.get_instructions(code))
    after = [*steps[1:], None]
    return {
        str(step.argval)
        for step, following in zip(steps, after, strict=True)
        if step.opname in LOADS and not (following and following.opname in LOADS and following.argval in ADDS)
    }
