"""Which device a run trains on, as a pure decision about an inventory."""

from dataclasses import dataclass

import torch

from brim.errors import ConfigError
from brim.hardware.inventory import Inventory


@dataclass(frozen=True)
class DeviceChoice:
    """The device, and the one line that tells the user so. ``devices``: all that one process computes on."""

    device: torch.device
    sentence: str
    is_fallback: bool = False
    devices: tuple[torch.device, ...] = ()


def choose_device(
    wanted: str | int | torch.device,
    machine: Inventory,
    use_multi_gpu: bool = True,
    local_rank: int = 0,
    local_ranks: int = 1,
    spreads: bool = False,
    most: int | None = None,
) -> DeviceChoice:
    """Turn what the user asked for into what is there. Of several ranks on a machine each takes a GPU of its own.

    ``"cuda"`` means whatever GPUs are visible and falls back to the CPU when there is none; ``"cuda:1"`` means that
    one and no other, so a missing one is an error; so does the number 1. ``"auto"`` is the best there is, the CPU
    without a warning. ``spreads``: whether one process may compute on several, ``most`` how many.
    """
    is_asked = wanted != "auto"
    if not is_asked:
        wanted = _best_there_is(machine)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0:
        wanted = f"cuda:{wanted}"
    try:
        device = torch.device(wanted)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device={wanted!r} is not a device; use 'cuda', 'cuda:0', 'cpu' or 'mps'") from error
    if device.type == "cpu":
        shared = "" if local_ranks == 1 else f", which {local_ranks} ranks share"
        training = f"training on the CPU ({machine.cores} cores{shared})"
        return DeviceChoice(device, f"{training}, as asked" if is_asked else f"no GPU found, {training}")
    if device.type == "mps":
        if not machine.has_mps:
            raise ConfigError("device='mps' was asked for, and this machine has none; use device='cpu'")
        return DeviceChoice(device, "training on the Apple GPU (mps)")
    if device.type != "cuda":
        raise ConfigError(f"device={str(wanted)!r} is not supported; use 'cuda', 'cuda:0', 'cpu' or 'mps'")
    if local_ranks > 1 and machine.gpus and device.index is None:
        chosen = machine.gpus[local_rank % len(machine.gpus)]
        sentence = (
            f"{local_ranks} ranks on {min(local_ranks, len(machine.gpus))} GPUs ({chosen.name}), each with its share"
        )
        return DeviceChoice(torch.device("cuda", chosen.index), sentence)
    return _choose_gpu(device, machine, use_multi_gpu, spreads and local_ranks == 1, most)


def _best_there_is(machine: Inventory) -> str:
    return "cuda" if machine.gpus else "mps" if machine.has_mps else "cpu"


def _choose_gpu(
    device: torch.device, machine: Inventory, use_multi_gpu: bool, spreads: bool, most: int | None
) -> DeviceChoice:
    gpus = machine.gpus
    if not gpus and device.index is None:
        return DeviceChoice(
            torch.device("cpu"), f"no GPU found, training on the CPU ({machine.cores} cores)", is_fallback=True
        )
    if device.index is not None and device.index >= len(gpus):
        raise ConfigError(
            f"device='{device}' was asked for, and {len(gpus)} GPUs are visible; use device='cuda' for what is there"
        )
    chosen = gpus[device.index or 0]
    name = f"{chosen.name}, {chosen.memory / 2**30:.0f} GiB"
    # Of one kind: the slowest card would set the pace.
    alike = tuple(torch.device("cuda", gpu.index) for gpu in gpus if gpu.name == chosen.name)
    if len(alike) > 1 and device.index is None and use_multi_gpu and spreads:
        used = alike[:most]
        many = "all" if len(used) == len(alike) else str(len(used))
        sentence = (
            f"{len(alike)} GPUs found, training on {many} with DataParallel ({name} each); torchrun or brim train is "
            "faster"
        )
        return DeviceChoice(used[0], sentence, devices=used)
    if len(gpus) == 1:
        sentence = f"1 GPU found, training on it ({name})"
    elif device.index is not None or not use_multi_gpu:
        sentence = f"{len(gpus)} GPUs found, training on cuda:{chosen.index} ({name}), as asked"
    else:
        sentence = (
            f"{len(gpus)} GPUs found, training on cuda:{chosen.index} only ({name}): "
            f"torchrun --nproc-per-node={len(gpus)} SCRIPT trains on all of them"
        )
    return DeviceChoice(torch.device("cuda", chosen.index), sentence)
