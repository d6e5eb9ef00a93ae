"""The roll call: the ranks of this start agree on a place in the store, whatever is left of those before."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from brim.engine.distributed.launch_store import launch_store


def call(store, world, ranks=None, patience=600.0):
    """What each rank's call comes to, side by side."""
    found = {}

    def run(rank):
        try:
            found[rank] = launch_store(store, rank, world, timedelta(seconds=patience))
        except dist.DistStoreError as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in (range(world) if ranks is None else ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_all_come_to_the_same_place(tmp_path):
    stores = call(dist.HashStore(), 3)
    stores[0].set("here", "yes")
    assert stores[1].get("here") == stores[2].get("here") == b"yes"


def test_what_others_left_before_is_not_seen():
    store = dist.HashStore()
    before = call(store, 2)
    before[0].set("key", "old")
    now = call(store, 2)
    assert not now[0].check(["key"]) and not now[1].check(["key"])
    now[1].set("key", "new")
    assert now[0].get("key") == b"new" and before[1].get("key") == b"old"


def test_a_smaller_world_than_before_meets_too():
    store = dist.HashStore()
    call(store, 3)
    now = call(store, 2)
    now[0].set("key", "new")
    assert now[1].get("key") == b"new"


def test_who_does_not_come_is_named():
    store = dist.HashStore()
    call(store, 3, ranks=[2], patience=0.05)  # has left its token, and waits no longer: no matter which thread is quick
    (error,) = call(store, 3, ranks=[0], patience=0.05).values()
    assert isinstance(error, dist.DistStoreError) and str(error).endswith("missing: 1")


@pytest.mark.parametrize("late", [0, 1])
def test_one_may_come_late(late):
    store, found = dist.HashStore(), {}
    thread = threading.Thread(target=lambda: found.update(call(store, 2, ranks=[1 - late])))
    thread.start()
    found.update(call(store, 2, ranks=[late]))
    thread.join()
    found[0].set("key", "x")
    assert found[1].get("key") == b"x"
