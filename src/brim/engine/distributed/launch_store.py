"""A part of the launcher's store that belongs to the processes which are there now, and to none before them."""

import json
import time
import uuid
from datetime import timedelta

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore, Store

PAUSE_S = 0.05
TOKENS = "brim-tokens"


def launch_store(store: Store, rank: int, world: int, timeout: timedelta) -> Store:
    """The store under a prefix that all ranks of this start agree on.

    torch's launcher keeps one store over all restarts, with the keys of processes that are gone, and the number of the
    restart does not tell starts apart: each machine counts its own failures (pytorch/pytorch#108158). So everybody
    leaves a token that was never used before, the first rank reads the tokens out, and who hears its own answers. When
    all have acknowledged, no token was one of the dead.
    """
    until = time.monotonic() + timeout.total_seconds()
    token, acknowledged = uuid.uuid4().hex, ""
    tokens: list[str] = []
    store.set(_key(rank), token)
    while time.monotonic() < until:
        if rank == 0 and (found := _tokens_of(store, world)) and found != tokens:
            tokens = found
            store.set(TOKENS, json.dumps(tokens))
        published = json.loads(store.get(TOKENS)) if store.check([TOKENS]) else []
        if len(published) == world and published[rank] == token:
            name = f"brim-{uuid.uuid5(uuid.NAMESPACE_OID, ''.join(published)).hex}"
            if acknowledged != name:
                store.add(f"{name}-acknowledged", 1)
                acknowledged = name
            if store.add(f"{name}-acknowledged", 0) == world:
                return PrefixStore(name, store)
        time.sleep(PAUSE_S)
    missing = [str(other) for other in range(world) if not store.check([_key(other)])]
    raise DistStoreError(f"not all of {world} ranks came within {timeout}; missing: {', '.join(missing) or 'unknown'}")


def _tokens_of(store: Store, world: int) -> list[str]:
    """The token of each rank, if all have left one."""
    keys = [_key(other) for other in range(world)]
    return [token.decode() for token in store.multi_get(keys)] if store.check(keys) else []


def _key(rank: int) -> str:
    return f"brim-token-{rank}"
