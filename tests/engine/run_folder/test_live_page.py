from types import SimpleNamespace

import pytest

from brim.engine.run_folder import live_page
from brim.engine.run_folder.live_page import EVERY_SECONDS, LivePage


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(live_page, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_it_is_written_every_so_often(clock):
    written = []
    page = LivePage(lambda: written.append(clock[0] - 1000))
    for _ in range(100):
        clock[0] += 1
        page.write_if_due()
    assert written == [EVERY_SECONDS, 2 * EVERY_SECONDS, 3 * EVERY_SECONDS]


def test_one_that_takes_long_is_written_less_often(clock):
    written = []

    def write():
        written.append(clock[0] - 1000)
        clock[0] += 2

    page = LivePage(write)
    for _ in range(300):
        clock[0] += 1
        page.write_if_due()
    assert written == [30, 232]
