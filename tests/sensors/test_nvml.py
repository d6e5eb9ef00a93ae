import pytest
from helpers.nvml import (
    GIB,
    Card,
    NvmlDouble,
    NVMLError,
    NVMLError_GpuIsLost,
    NVMLError_NoPermission,
    divided_card,
    h200,
    old_card,
)  # fmt: skip

from brim.sensors import nvml
from brim.sensors.gpu_reading import GpuProcess
from brim.sensors.nvml import NvmlGpus


@pytest.fixture(autouse=True)
def commands(monkeypatch):
    monkeypatch.setattr(nvml, "command_of", {4242: "python train.py"}.get)


def read(*cards, **settings):
    gpus = NvmlGpus(NvmlDouble(list(cards), **settings))
    gpus.read()  # counters are told between two looks
    return gpus.read()


def test_everything_that_a_new_card_tells():
    (gpu,) = read(h200())
    assert (gpu.label, gpu.name, gpu.uuid, gpu.trouble) == ("0", "NVIDIA H200", "GPU-1111", "")
    assert (gpu.memory_used, gpu.memory_total, gpu.duty_cycle) == (61 * GIB, 140 * GIB, 97)
    assert (gpu.sm, gpu.tensor, gpu.dram) == (71.4, 44.0, 38.6)
    assert (gpu.power, gpu.power_limit, gpu.temperature) == (512.3, 700.0, 66)
    assert (gpu.sm_clock, gpu.sm_clock_max, gpu.throttling) == (1755, 1980, ("power cap",))
    assert (gpu.pcie_generation, gpu.pcie_width) == (5, 16)
    assert (gpu.pcie_in, gpu.pcie_out) == (2000 * 2**20, 100 * 2**20)
    assert gpu.processes == (GpuProcess(4242, 58 * GIB, "python train.py"), GpuProcess(17, None, None))


def test_what_a_card_does_not_support_is_none():
    (gpu,) = read(old_card())
    assert (gpu.name, gpu.uuid, gpu.memory_used) == ("Tesla M60", "GPU-2222", 1 * GIB)
    assert gpu.pcie_in == gpu.pcie_out == 1000 * 1024  # asked by itself, where there are no counters
    for name in ("duty_cycle", "sm", "tensor", "dram", "power", "power_limit", "temperature", "sm_clock", "throttling",
                 "pcie_width", "processes"):  # fmt: skip
        assert getattr(gpu, name) is None, name


@pytest.mark.parametrize("error", [NVMLError("Unknown Error"), NVMLError_NoPermission()])
@pytest.mark.parametrize("what", sorted(h200().answers))
def test_any_single_answer_may_fail(what, error):
    card = h200()
    card.answers[what] = error
    (gpu,) = read(card)
    assert gpu.index == 0 and (gpu.sm == 71.4)


def test_a_card_that_is_lost_does_not_hide_the_others():
    lost, seen = read(Card({}, lost=NVMLError_GpuIsLost()), h200())
    assert (lost.index, lost.trouble, lost.name, lost.memory_total) == (0, "GPU is lost", "", None)
    assert (seen.index, seen.duty_cycle) == (1, 97)


def test_the_instances_of_a_divided_card_follow_it():
    whole, first, second = read(divided_card())
    assert [gpu.label for gpu in (whole, first, second)] == ["0", "0:0", "0:2"]
    assert (whole.duty_cycle, whole.power) == (None, 512.3)
    assert (first.memory_used, first.duty_cycle, first.processes) == (3 * GIB, None, None)
    assert (second.uuid, second.processes[0].pid) == ("MIG-b", 99)


def test_older_drivers_and_packages_have_other_names_or_none():
    card = h200()
    card.answers["CurrentClocksThrottleReasons"] = card.answers.pop("CurrentClocksEventReasons") | 0x40
    missing = ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMigMode", "nvmlGpmQueryDeviceSupport"]
    (gpu,) = read(card, missing=missing)
    assert gpu.throttling == ("power cap", "thermal limit of the hardware") and gpu.sm is None


def test_a_process_that_computes_and_draws_is_counted_once():
    card = h200()
    card.answers["GraphicsRunningProcesses"] = [*card.answers["ComputeRunningProcesses"]]
    assert [process.pid for process in read(card)[0].processes] == [4242, 17]


def test_utilization_asks_for_nothing_else():
    double = NvmlDouble([h200(), old_card(), Card({}, lost=NVMLError_GpuIsLost())])
    gpus = NvmlGpus(double)
    assert gpus.utilization() == [("GPU-1111", 97), ("GPU-2222", None), ("", None)]
    assert "nvmlDeviceGetPcieThroughput" not in double.calls


def test_closing_gives_everything_back():
    double = NvmlDouble([h200(), h200()])
    gpus = NvmlGpus(double)
    for _ in range(5):
        gpus.read()
        assert double.samples == 2
    gpus.close()
    assert double.samples == 0 and not double.is_open
