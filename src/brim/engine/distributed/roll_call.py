"""A part of the launcher's store that belongs to the processes which are there now, and to none before them."""

import json
import time
import uuid
from datetime import timedelta

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore, Store

PAUSE_S = 0.05
CALL = "brim-call"


def roll_call(store: Store, rank: int, world: int, patience: timedelta) -> Store:
    """The store under a prefix that all ranks of this start agree on.

    torch's launcher keeps one store over all restarts, with the keys of processes that are gone, and the number of the
    restart does not tell starts apart: each machine counts its own failures (pytorch/pytorch#108158). So everybody
    leaves a word that was never used before, the first rank reads the words out, and who hears its own answers. When
    all have answered, no word was one of the dead.
    """
    until = time.monotonic() + patience.total_seconds()
    word, answered = uuid.uuid4().hex, ""
    words: list[str] = []
    store.set(_word(rank), word)
    while time.monotonic() < until:
        if rank == 0 and (heard := _heard(store, world)) and heard != words:
            words = heard
            store.set(CALL, json.dumps(words))
        called = json.loads(store.get(CALL)) if store.check([CALL]) else []
        if len(called) == world and called[rank] == word:
            name = f"brim-{uuid.uuid5(uuid.NAMESPACE_OID, ''.join(called)).hex}"
            if answered != name:
                store.add(f"{name}-answers", 1)
                answered = name
            if store.add(f"{name}-answers", 0) == world:
                return PrefixStore(name, store)
        time.sleep(PAUSE_S)
    missing = [str(other) for other in range(world) if not store.check([_word(other)])]
    raise DistStoreError(f"not all of {world} ranks came within {patience}; missing: {', '.join(missing) or 'unknown'}")


def _heard(store: Store, world: int) -> list[str]:
    """The word of each rank, if all have left one."""
    keys = [_word(other) for other in range(world)]
    return [word.decode() for word in store.multi_get(keys)] if store.check(keys) else []


def _word(rank: int) -> str:
    return f"brim-word-{rank}"
