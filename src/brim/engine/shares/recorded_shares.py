"""What a run records of its time, and which alerts it gives, by the device that it computes on."""

import sys
from functools import partial

import torch

from brim.engine.oom.memory_watch import usable_memory
from brim.engine.shares.alerts import Alerts, MemoryUse
from brim.engine.shares.device_events import CudaEvents
from brim.engine.shares.device_shares import DeviceShares
from brim.engine.shares.helping_commands import doctor_command, plan_command
from brim.engine.shares.host_shares import HostShares
from brim.record import Journal
from brim.sensors import host_reading
from brim.sensors.duty_cycle import DutyCycleSensor

SharesRecorder = HostShares | DeviceShares


def shares_recorder(device: torch.device, accumulation: int) -> SharesRecorder:
    """By events on a GPU, else by the host's clock."""
    if device.type != "cuda":
        return HostShares(computes_here=device.type == "cpu")
    # Of the batches of a step and of those that are copied ahead of the next.
    return DeviceShares(CudaEvents(device), copies=2 * (accumulation + 1))


def run_alerts(device: torch.device, journal: Journal, is_first: bool) -> Alerts:
    """Said by the first rank, and kept in the record of every one."""
    tell = partial(journal.warn if is_first else journal.note, kind="alert")
    doctor = doctor_command(sys.argv)
    if device.type != "cuda":
        return Alerts(tell, doctor, host_memory)
    number = torch.cuda.current_device() if device.index is None else device.index
    return Alerts(tell, doctor, partial(gpu_memory, device), DutyCycleSensor(number))


def gpu_memory(device: torch.device) -> MemoryUse:
    """What tensors take at their peak, of what torch could reserve: what it merely keeps for later is free."""
    used, limit = torch.cuda.max_memory_allocated(device), usable_memory(device)
    return MemoryUse(used, limit, f"on {device}", plan_command(sys.argv), "says what takes it, and what would fit")


def host_memory() -> MemoryUse | None:
    """RAM, of the machine or of its cgroup; beyond it the kernel ends processes."""
    used, total, is_limited = host_reading.usable_memory()
    if used is None or total is None:
        return None
    where = "of the cgroup's RAM" if is_limited else "of RAM"
    return MemoryUse(used, total, where, "brim watch", "says which runs hold it")
