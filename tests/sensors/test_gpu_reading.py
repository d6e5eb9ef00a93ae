import json
from dataclasses import asdict

from brim.sensors.gpu_reading import THROTTLING, GpuProcess, GpuReading, throttling_of


def test_idle_and_chosen_clocks_are_no_throttling():
    assert throttling_of(0x1 | 0x2 | 0x100) == ()
    assert throttling_of(sum(THROTTLING)) == tuple(THROTTLING.values())


def test_a_reading_is_plain_json():
    told = json.loads(json.dumps(asdict(GpuReading(0, "X", processes=(GpuProcess(1, 2, "a"),)))))
    assert told["processes"] == [{"pid": 1, "memory": 2, "name": "a"}] and told["duty_cycle"] is None
