import pytest
import torch
from helpers.nvml import NvmlDouble, h200, old_card

from brim.errors import ConfigError
from brim.sensors import utilization
from brim.sensors.nvml import NvmlGpus
from brim.sensors.utilization import get_gpu_utilization


@pytest.fixture
def double(monkeypatch):
    cards = [h200(), h200(), old_card()]
    for place, (card, busy) in enumerate(zip(cards, (97, 12, 0), strict=True)):
        card.answers |= {"UUID": f"GPU-{place}abc"}
        if place < 2:
            card.answers["UtilizationRates"].gpu = busy
    double = NvmlDouble(cards)
    monkeypatch.setattr(utilization, "open_gpus", lambda: (NvmlGpus(double), ""))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return double


def test_the_first_gpu_as_a_whole_number(double):
    assert get_gpu_utilization() == 97 and type(get_gpu_utilization()) is int
    assert not double.is_open


@pytest.mark.parametrize("device", [1, "1", "cuda:1", torch.device("cuda", 1)])
def test_another_one(double, device):
    assert get_gpu_utilization(device=device) == 12


@pytest.mark.parametrize("device", [2, 3, 99, "cpu", torch.device("cpu"), "mps"])
def test_none_where_there_is_no_such_gpu_or_it_does_not_tell(double, device):
    assert get_gpu_utilization(device) is None


@pytest.mark.parametrize("device", ["gpu", -1, True, 1.5, "cuda:x", "cuda:-1", ""])
def test_what_is_no_device_is_refused(double, device):
    with pytest.raises(ConfigError, match="is not a GPU; use a number, or 'cuda:0'"):
        get_gpu_utilization(device)


@pytest.mark.parametrize(
    ("visible", "found"),
    [("1", [12, None]), ("1,0", [12, 97]), ("GPU-1", [12, None]), (" GPU-1abc , 0", [12, 97]), ("", [None, None]),
     ("-1", [None, None]), ("0,9,1", [97, None]), ("0,GPU-,1", [97, None]), ("MIG-x", [None, None])],
)  # fmt: skip
def test_cuda_visible_devices_is_obeyed(double, monkeypatch, visible, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [get_gpu_utilization(device) for device in (0, 1)] == found


def test_none_without_a_driver(monkeypatch):
    monkeypatch.setattr(utilization, "open_gpus", lambda: (None, "no GPU"))
    assert get_gpu_utilization() is None
