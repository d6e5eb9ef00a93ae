import json
from itertools import count

from helpers.nvml import NvmlDouble, h200

from brim.observe.snapshot import Watcher
from brim.sensors.cgroup import CpuGrant
from brim.sensors.host_reading import HostSensor
from brim.sensors.nvml import NvmlGpus


def busy_host():
    """A sensor whose every look is a second after the last, with half a core's work in it."""
    grants = (CpuGrant(2.0, look / 2, None, None) for look in count())
    seconds = count()
    return HostSensor(grant=lambda: next(grants), clock=lambda: float(next(seconds)))


def test_a_look_holds_gpus_host_and_jobs(tmp_path):
    double = NvmlDouble([h200()])
    watcher = Watcher([tmp_path], (NvmlGpus(double), ""), busy_host())
    watcher.read()
    told = json.loads(json.dumps(watcher.read().as_json()))
    assert (told["source"], told["note"], told["gpus"][0]["tensor"]) == ("NVML", "", 44.0)
    assert told["host"]["cpu"] == 25.0 and isinstance(told["jobs"], list)
    watcher.close()
    assert not double.is_open


def test_a_driver_without_a_card_says_so(tmp_path):
    assert Watcher([tmp_path], (NvmlGpus(NvmlDouble([])), "")).read().note == "NVML shows no GPU"


def test_without_a_driver_there_is_the_host(tmp_path):
    watcher = Watcher([tmp_path], (None, "no GPU is shown: why"))
    found = watcher.read()
    assert (found.source, found.gpus, found.note) == ("", (), "no GPU is shown: why") and found.host.cores > 0
    watcher.close()
