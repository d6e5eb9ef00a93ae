"""GPUs as the command nvidia-smi sees them, where the package nvidia-ml-py is not installed."""

import subprocess
from collections.abc import Callable, Sequence

from brim.sensors.gpu_reading import GpuProcess, GpuReading, throttling_of
from brim.sensors.processes import command_of

COMMAND = "nvidia-smi"
SECONDS = 10.0  # a driver that is in trouble may never answer
MIB = 2**20
FIELDS = (
    "index", "name", "uuid", "memory.used", "memory.total", "utilization.gpu", "power.draw", "power.limit",
    "temperature.gpu", "clocks.sm", "clocks.max.sm", "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip
# One name of a field that the command does not know spoils the whole answer, and this one was renamed.
REASONS = (("clocks_event_reasons.active",), ("clocks_throttle_reasons.active",), ())
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")  # the name last: it may have commas

Run = Callable[[Sequence[str]], str | None]


def run_nvidia_smi(arguments: Sequence[str]) -> str | None:
    """What it prints; None where it fails, does not answer or is not there."""
    try:
        done = subprocess.run(
            [COMMAND, *arguments, "--format=csv,noheader,nounits"], capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout


class NvidiaSmiGpus:
    """All GPUs of the machine, by a command that takes a tenth of a second."""

    name = COMMAND

    def __init__(self, run: Run = run_nvidia_smi) -> None:
        self._run = run
        self._reasons: tuple[str, ...] | None = None  # what this version calls them

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs; none where the command does not answer."""
        lines = self._query()
        processes = self._processes() if lines else None
        return tuple(_reading(line, processes) for line in lines)

    def utilization(self) -> list[tuple[str, int | None]]:
        """UUID and duty cycle of each GPU."""
        rows = _rows(self._run(["--query-gpu=uuid,utilization.gpu"]), 2)
        return [(uuid, _as_int(told)) for uuid, told in rows]

    def close(self) -> None:
        """There is nothing to give back."""

    def _query(self) -> list[list[str]]:
        for reasons in REASONS if self._reasons is None else (self._reasons,):
            fields = (*FIELDS, *reasons)
            told = self._run([f"--query-gpu={','.join(fields)}"])
            if told is not None:
                self._reasons = reasons
                return [row for row in _rows(told, len(fields)) if _as_int(row[0]) is not None]
        return []

    def _processes(self) -> dict[str, list[GpuProcess]] | None:
        told = self._run([f"--query-compute-apps={','.join(PROCESS_FIELDS)}"])
        if told is None:
            return None
        found: dict[str, list[GpuProcess]] = {}
        for uuid, number, used, name in _rows(told, len(PROCESS_FIELDS)):
            if (pid := _as_int(number)) is not None:
                process = GpuProcess(pid, _bytes(used), command_of(pid) or name)
                found.setdefault(uuid, []).append(process)
        return found


def _reading(row: list[str], processes: dict[str, list[GpuProcess]] | None) -> GpuReading:
    index, name, uuid, used, total, duty, power, limit, temperature, clock, fastest, generation, width, *reasons = row
    return GpuReading(
        int(index), name, uuid, memory_used=_bytes(used), memory_total=_bytes(total), duty_cycle=_as_int(duty),
        power=_number(power), power_limit=_number(limit), temperature=_as_int(temperature), sm_clock=_as_int(clock),
        sm_clock_max=_as_int(fastest), pcie_generation=_as_int(generation), pcie_width=_as_int(width),
        throttling=throttling_of(_bits(reasons[0]) if reasons else None),
        processes=None if processes is None else tuple(processes.get(uuid, ())),
    )  # fmt: skip


def _rows(told: str | None, fields: int) -> list[list[str]]:
    """Lines with so many fields; others are messages."""
    rows = [[field.strip() for field in line.split(",", fields - 1)] for line in (told or "").splitlines()]
    return [row for row in rows if len(row) == fields]


def _number(told: str) -> float | None:
    """Cards say ``[N/A]``, ``[Not Supported]``, ``[Insufficient Permissions]``, ``[GPU is lost]``...

    >>> _number("51.20"), _number("[N/A]")
    (51.2, None)
    """
    try:
        return float(told)
    except ValueError:
        return None


def _as_int(told: str) -> int | None:
    return int(told) if told.isascii() and told.isdigit() else None


def _bytes(told: str) -> int | None:
    mib = _as_int(told)
    return None if mib is None else mib * MIB


def _bits(told: str) -> int | None:
    try:
        return int(told, 16)
    except ValueError:
        return None
