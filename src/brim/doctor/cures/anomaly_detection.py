"""Autograd's anomaly detection, switched off."""

from collections.abc import Callable

import torch


def switch_off_anomaly_detection() -> Callable[[], None]:
    """Off from now on, also where the script switches it on for every step; what is returned undoes that."""
    switch, was_on = torch.set_anomaly_enabled, torch.is_anomaly_enabled()
    switch(False)
    torch.set_anomaly_enabled = lambda enabled, check_nan=True: None

    def undo() -> None:
        torch.set_anomaly_enabled = switch
        switch(was_on)

    return undo
