import pytest

from brim.data.reading.shared_room import PLENTY, SharedRoom
from brim.errors import DataError

MB = 1_000_000


def test_what_has_room_is_no_trouble_and_what_has_none_is_refused_with_the_numbers():
    room = SharedRoom(count=4, prefetch=2, free=64 * MB)
    room.check(8 * MB)
    with pytest.raises(DataError, match=r"4 workers with 2 batches of 9 MB each need 72 MB of /dev/shm.*64 MB left"):
        room.check(9 * MB)


def test_only_where_there_is_little_a_batch_is_tried_before_workers_are_started():
    assert SharedRoom(4, 2, PLENTY - 1).is_short
    assert not SharedRoom(4, 2, PLENTY).is_short
