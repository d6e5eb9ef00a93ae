"""What a process group says of those who are not there."""

from datetime import timedelta

import pytest
import torch.distributed as dist

from brim.engine.distributed import process_group as room
from brim.engine.distributed.notice import Notice
from brim.engine.distributed.process_group import ProcessGroup


@pytest.fixture
def group(monkeypatch):
    """The first of three, with a store and without a group behind it."""
    monkeypatch.setattr(room, "ANSWER_S", 0.0)
    made = ProcessGroup.__new__(ProcessGroup)
    made.rank, made.world, made._formations, made._store = 0, 3, 2, dist.HashStore()
    made._failures, made._limit = 0, room.TIMEOUT
    return made


def test_those_who_do_not_answer_are_absent(group):
    other = ProcessGroup.__new__(ProcessGroup)
    vars(other).update(vars(group), rank=2)
    assert other.missing_ranks() == [0, 1]
    assert group.missing_ranks() == [1]


def test_where_the_store_has_gone_too_nobody_is_named(group):
    group._store = None
    assert group.missing_ranks() == []


def test_the_first_notice_counts_and_belongs_to_its_group(group):
    assert not group.has_notice()
    group.post_notice(Notice(0, "one", 4))
    group.post_notice(Notice(1, "two"))
    assert group.has_notice() and group.read_notice() == Notice(0, "one", 4)
    assert group.posted_failure() is None  # it ran out of memory, and goes on
    group._formations += 1
    assert not group.has_notice()


def test_the_timeout_is_never_more_than_at_the_start(group, monkeypatch):
    limits = []
    monkeypatch.setattr(dist.distributed_c10d, "_set_pg_timeout", limits.append)
    group.set_timeout(5.0)
    group.set_timeout(5.0)  # torch is told once
    group.set_timeout(1e9)
    group.set_timeout()
    assert limits == [timedelta(seconds=5), room.TIMEOUT]
