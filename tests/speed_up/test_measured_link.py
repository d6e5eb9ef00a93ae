"""All-reduces between real processes, over gloo."""

import json
import os
import subprocess
import sys

import pytest
import torch.distributed as dist

from brim.errors import ConfigError
from brim.speed_up.collectives import all_reduce_seconds
from brim.speed_up.measured_link import join_process_group, measure_all_reduce, measured_link

PROGRAM = """\
import json
import torch.distributed as dist
from brim.speed_up.measured_link import join_process_group, measure_all_reduce, measured_link

join_process_group()
small, large, link = measure_all_reduce(8), measure_all_reduce(32 << 20), measured_link()
if dist.get_rank() == 0:
    print(json.dumps({"small": small, "large": large, "link": link.as_json()}))
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def launched_by_nobody(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def alone(tmp_path):
    """A group of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_measure_the_link_between_them(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone",
         str(program)],
        capture_output=True, text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["small"] > 0 and found["large"] > 0
    link = found["link"]
    assert (link["name"], link["measured"]) == ("gloo over 2 processes", True)
    assert link["bandwidth"] > 0 and link["latency"] > 0


def test_the_link_explains_what_was_measured(alone, monkeypatch):
    seconds = {8: 60e-6, 40_000_000: 60e-6 + 6e-3}
    monkeypatch.setattr("brim.speed_up.measured_link.measure_all_reduce", lambda size: seconds[size])
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    link = measured_link(40_000_000)
    assert link.bandwidth == pytest.approx(10e9)
    assert link.latency == pytest.approx(10e-6)
    assert all_reduce_seconds(40_000_000, 4, link) == pytest.approx(seconds[40_000_000])


def test_one_process_alone_has_no_link(alone):
    assert measure_all_reduce(1024, rounds=2) > 0
    with pytest.raises(ConfigError, match="a link needs two processes"):
        measured_link()


def test_without_a_group_or_a_launcher_nothing_can_be_measured():
    with pytest.raises(ConfigError, match="there is no process group to measure; start several"):
        measure_all_reduce(1024)
    with pytest.raises(ConfigError, match="a link is measured between processes: torchrun"):
        join_process_group()
