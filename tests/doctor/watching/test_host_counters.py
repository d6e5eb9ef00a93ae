import gc

from brim.doctor.watching.host_counters import HostCounters, io_wait_seconds, throttled_seconds
from brim.doctor.watching.meters import Meters


def test_collections_are_counted(monkeypatch):
    monkeypatch.setattr(gc, "callbacks", list(gc.callbacks))
    meters = Meters()
    counters = HostCounters(meters)
    counters._on_collection("start", {})
    counters._on_collection("stop", {})
    assert meters.collections == 1 and meters.garbage > 0


def test_what_the_system_counts_is_read():
    meters = Meters()
    HostCounters(meters).read()
    assert meters.cpu > 0 and meters.io_wait == io_wait_seconds() >= 0
    assert meters.in_line >= 0
    assert io_wait_seconds("no such process") == 0


def test_throttling_is_read_in_both_versions_of_cgroups(tmp_path):
    (tmp_path / "two").write_text("nr_throttled 3\nthrottled_usec 1500000\n")
    (tmp_path / "one").write_text("nr_throttled 3\nthrottled_time 1500000000\n")
    assert throttled_seconds(tmp_path / "two") == throttled_seconds(tmp_path / "one") == 1.5
    assert throttled_seconds(None) == throttled_seconds(tmp_path / "none") == 0
