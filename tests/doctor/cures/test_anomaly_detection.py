import pytest
import torch

from brim.doctor.cures.anomaly_detection import switch_off_anomaly_detection
from brim.doctor.cures.applied import apply_cures
from brim.doctor.order import Cures


@pytest.fixture(autouse=True)
def switch_is_put_back(monkeypatch):
    monkeypatch.setattr(torch, "set_anomaly_enabled", torch.set_anomaly_enabled)


def test_it_stays_off_though_the_script_switches_it_on():
    apply_cures(Cures(no_anomaly_detection=True))
    torch.autograd.set_detect_anomaly(True)
    assert not torch.is_anomaly_enabled()
    with torch.autograd.detect_anomaly(check_nan=False):
        assert not torch.is_anomaly_enabled()


def test_what_was_on_is_on_again_when_that_is_undone():
    with torch.autograd.set_detect_anomaly(True):
        undo = switch_off_anomaly_detection()
        assert not torch.is_anomaly_enabled()
        undo()
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()
