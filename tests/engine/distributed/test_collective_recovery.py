"""The thread that aborts a collective of NCCL when another rank has said that it cannot go on."""

import threading
import time
from types import SimpleNamespace

import torch.distributed as dist

from brim.engine.distributed import collective_recovery
from brim.engine.distributed.collective_recovery import CollectiveRecovery


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "brim-watch"]


def test_the_thread_aborts_once_for_a_notice_and_ends_with_the_run(monkeypatch):
    aborts, group = [], SimpleNamespace(world=2, has_notice=lambda: True)
    monkeypatch.setattr(collective_recovery, "LOOKS_S", 0.001)
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: aborts.append(1))

    def attempt():
        while not aborts:
            time.sleep(0.001)
        return "done"

    recovery = CollectiveRecovery(SimpleNamespace(group=group))
    before = len(threads())
    assert recovery.run(attempt, "step", lambda: 0, lambda size: None) == "done"
    assert aborts == [1]
    (thread,) = threads()[before:]
    del recovery
    thread.join()  # it would never end
