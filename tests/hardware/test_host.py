import os
from pathlib import Path

import pytest

from brim.hardware import host
from brim.sensors import host_reading
from brim.sensors.cgroup import memory_limit


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A machine that says what the test writes; nothing written means no such file."""
    monkeypatch.setattr(host_reading, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(host, "memory_limit", lambda: memory_limit(tmp_path, tmp_path / "own"))
    return lambda name, text: (tmp_path / name).write_text(text)


MEMINFO = "MemTotal:       100 kB\nMemFree:    10 kB\nMemAvailable:       40 kB\nHugePages_Total:       0\n"


def test_available_memory_is_what_linux_says(files):
    files("meminfo", MEMINFO)
    assert host.available_memory() == 40 * 1024


@pytest.mark.parametrize(
    ("limit", "current", "left"),
    [("max", "5", 40 * 1024), ("20000", "5000", 15000), ("20000", "30000", 0), ("900000", "0", 40 * 1024)],
)
def test_the_limit_of_the_cgroup_counts_as_well(files, limit, current, left):
    files("meminfo", MEMINFO)
    files("memory.max", limit)
    files("memory.current", current)
    assert host.available_memory() == left


def test_files_that_can_be_dropped_again_are_not_in_use(files):
    files("meminfo", MEMINFO)
    files("memory.max", "20000")
    files("memory.current", "15000")
    files("memory.stat", "anon 100\ninactive_file 4000\nactive_file 7\n")
    assert host.available_memory() == 9000


@pytest.mark.parametrize("text", [None, "", "nonsense\n", "MemAvailable: many kB\n", "MemTotal: 5 kB\n"])
def test_where_nobody_says_what_is_left_nobody_guesses(files, text):
    if text is not None:
        files("meminfo", text)
    assert host.available_memory() is None


def test_shared_memory_is_what_the_folder_has_left(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path)
    assert host.free_shared_memory() > 0
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path / "none")
    assert host.free_shared_memory() is None


def test_open_files_follow_the_soft_limit(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (123, 456))
    assert host.open_file_limit() == 123
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert host.open_file_limit() is None


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_the_memory_of_a_process_is_that_of_its_pages():
    assert host.process_memory() > 1 << 20
    assert host.process_memory(os.getpid()) > 1 << 20


def test_a_process_that_is_not_there_has_no_memory():
    assert host.process_memory("none") is None


@pytest.mark.parametrize(
    ("set_to", "folder"),
    [
        ({"BRIM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/brim"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/brim"),
        ({"BRIM_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/me/.cache/brim"),
        ({}, "/home/me/.cache/brim"),
    ],
)
def test_the_cache_folder_is_where_the_user_wants_it(monkeypatch, set_to, folder):
    for name in ("BRIM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    assert host.cache_folder() == Path(folder)
