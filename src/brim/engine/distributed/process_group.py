"""The group of processes that brim forms of its ranks, and forms again when a collective has failed."""

import atexit
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from brim.engine.distributed.connections import Connections, between_ranks, open_connections, shut_down
from brim.engine.distributed.launch_store import launch_store
from brim.engine.distributed.notice import Notice
from brim.errors import ConfigError

TIMEOUT = timedelta(minutes=10)  # for a rank that searches for its micro-batch size, or evaluates

ANSWER_S = 1.0
FAILURE_S = 2.0  # for others to end with an error as well, before the one that did cuts its connections
LOOK_S = 0.02


class ProcessGroup:
    """torch's default process group, with a store beside it in which ranks leave notices when the group is stuck."""

    def __init__(self, rank: int, world: int, backend: dict[str, Any]) -> None:
        self.rank = rank
        self.world = world
        self.is_broken = False  # connections were shut down: it has to be formed again
        self._connections: Connections = {}  # to the other ranks
        self._limit = TIMEOUT  # of a collective
        self._failures = 0  # of all ranks together
        self._backend = backend
        self._formations = 0
        self._hosts: Any = None
        self._formed: Any = None
        try:
            store, _, _ = next(rendezvous("env://", rank, world, timeout=TIMEOUT))
        except ValueError as error:
            raise ConfigError(f"the ranks cannot find each other: {error}; start them with torchrun") from error
        self._store = launch_store(store, rank, world, TIMEOUT)
        self.form()
        atexit.register(_leave_group)  # or its threads may still be at work when the interpreter goes

    def form(self) -> None:
        """Form the group; again after a collective that failed."""
        if dist.is_initialized():
            with suppress(Exception):  # it is broken
                dist.destroy_process_group()
        self._formations += 1
        self._hosts, self._limit, self.is_broken = None, TIMEOUT, False
        before = open_connections()
        store = PrefixStore(f"group-{self._formations}", self._store)
        dist.init_process_group(**self._backend, store=store, rank=self.rank, world_size=self.world, timeout=TIMEOUT)
        self._formed = dist.group.WORLD
        dist.barrier()  # until all are there: one that ends at once may take the store with it
        self._connections = self._opened_since(before, "world", TIMEOUT)

    def host_group(self, timeout: float) -> Any:
        """A gloo group for what hosts exchange without waiting for a GPU. All ranks ask for it at once, or none.

        ``timeout``: seconds that an exchange in it may take, if it is formed now.
        """
        if self._hosts is None:
            before = open_connections()
            is_there = dist.get_backend() == "gloo"
            limit = min(TIMEOUT, timedelta(seconds=timeout))
            self._hosts = dist.group.WORLD if is_there else dist.new_group(backend="gloo", timeout=limit)
            if not is_there:
                self._connections |= self._opened_since(before, "hosts", limit)
        return self._hosts

    def _opened_since(self, before: Connections, what: str, timeout: timedelta) -> Connections:
        """The connections to other ranks that a group has opened, and none of those that anybody else has meanwhile."""
        found = {name: ends for name, ends in open_connections().items() if name not in before}
        key = f"connections-{self._formations}-{what}"
        return between_ranks(found, self._store, key, self.rank, self.world, timeout)

    def shut_down(self) -> None:
        """End the connections, and with them the waiting of the other ranks."""
        shut_down(self._connections)

    @property
    def is_current(self) -> bool:
        """Whether it is still torch's default group: a program may have ended it, and formed its own."""
        return dist.is_initialized() and dist.group.WORLD is self._formed

    def missing_ranks(self) -> list[int]:
        """Who does not say, within a moment, that it is there: asked when a collective has failed."""
        found: list[int] = []
        with suppress(Exception):  # the store may have gone with them
            self._store.set(f"{self._notice}-{self.rank}", "here")
            time.sleep(ANSWER_S)
            found = [rank for rank in range(self.world) if not self._store.check([f"{self._notice}-{rank}"])]
        return found

    def set_timeout(self, seconds: float | None = None) -> None:
        """How long an exchange may take before it fails; as long as at the start if not said."""
        limit = TIMEOUT if seconds is None else min(TIMEOUT, timedelta(seconds=seconds))
        if limit == self._limit:
            return
        self._limit = limit
        with suppress(AttributeError):  # torch's name for it is a private one
            dist.distributed_c10d._set_pg_timeout(limit)

    def post_notice(self, notice: Notice) -> None:
        """Say why this group cannot go on; the first notice counts."""
        self._store.compare_set(self._notice, "", notice.to_json())

    def post_failure(self, notice: Notice) -> None:
        """This rank ends with an error: say so, and end the waiting of others, unless all of them end as well."""
        with suppress(Exception):  # the store may have gone
            self.post_notice(notice)
            self._store.add(f"{self._notice}-failures", 1)
            until = time.monotonic() + FAILURE_S
            while time.monotonic() < until:
                if self._store.add(f"{self._notice}-failures", 0) == self.world:
                    self._failures += 1  # on all ranks: what was said is over
                    return
                time.sleep(LOOK_S)
        self.is_broken = True
        self.shut_down()

    def has_notice(self) -> bool:
        """Whether a rank has said that this group cannot go on."""
        return bool(self._store.check([self._notice]))

    def read_notice(self) -> Notice:
        return Notice.from_json(self._store.get(self._notice).decode())

    def posted_failure(self) -> Notice | None:
        """The notice of a rank that ended with an error; None where none did."""
        with suppress(Exception):  # the store may have gone
            if self.has_notice() and (notice := self.read_notice()).micro_batch is None:
                return notice
        return None

    @property
    def _notice(self) -> str:
        return f"notice-{self._formations}-{self._failures}"


# Of the process and not of a trainer: torch has one default group for it, which a later trainer has to find and to use,
# and which ends with the store that the first one opened. The last one is the default group.
_formed: list[ProcessGroup] = []


def has_formed_group() -> bool:
    """Whether the default group is one that brim has formed, in this run or an earlier one of this process."""
    return bool(_formed) and _formed[-1].is_current


def form_group(rank: int, world: int, device: torch.device, own_gpu: bool) -> ProcessGroup | None:
    """The group of the ranks; None where the program has formed one itself, which brim cannot form again."""
    if dist.is_initialized():
        if has_formed_group() and _formed[-1].is_broken:
            _formed[-1].form()
        return _formed[-1] if has_formed_group() else None
    backend = {"backend": "nccl", "device_id": device} if own_gpu else {"backend": "gloo"}
    _formed.append(ProcessGroup(rank, world, backend))
    return _formed[-1]


def _leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
