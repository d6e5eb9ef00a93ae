"""Connections between ranks are told from those that anybody else has opened meanwhile."""

import json
import socket
import sys
from datetime import timedelta

import pytest
import torch.distributed as dist

from brim.engine.distributed.connections import between_ranks, open_connections, shut_down

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are found in /proc")


def test_only_what_another_rank_has_seen_from_its_end_is_shut_down():
    before = open_connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        ours, own = socket.create_connection(place), socket.create_connection(place)
        far, other = server.accept()[0], server.accept()[0]
    found = {name: ends for name, ends in open_connections().items() if name not in before}
    store = dist.HashStore()
    ends = [f"{address} {port}" for address, port in (place, ours.getsockname())]
    store.set("key-1", json.dumps([ends]))
    matched = between_ranks(found, store, "key", 0, 2, timedelta(seconds=5))
    assert len(found) == 4 and len(matched) == 1
    assert shut_down(matched) == 1
    assert far.recv(1) == b""  # the other end is told
    own.sendall(b"x")
    assert other.recv(1) == b"x"
    for end in (ours, own, far, other):
        end.close()
