"""How a moment of the machine looks in a terminal."""

import os
import platform
import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from brim.errors import printable
from brim.observe.fitting_table import FittingColumn, fitting_table
from brim.observe.last_shares import show_shares
from brim.observe.running_jobs import RunningJob
from brim.observe.snapshot import Snapshot
from brim.record.words import show_seconds
from brim.sensors.gpu_reading import GpuReading
from brim.sensors.host_reading import HostReading

GIB, MEGA = 2**30, 10**6
UNKNOWN = "-"
QUIET_SECONDS = 60.0  # without a number: an evaluation, a long step, or a run that hangs
LEGEND = "duty cycle: time in which any kernel ran; SM, tensor, DRAM: how much of the card was at work"


def watch_frame(now: Snapshot, width: int) -> RenderableType:
    """GPUs, the trainings that go on, CPU and RAM, and processes; in ``width`` columns.

    What matters most comes first: a terminal that is not high enough shows the beginning.
    """
    clock = time.strftime("%H:%M:%S", time.localtime(now.time))
    parts: list[RenderableType] = [Text(f"brim watch  {printable(platform.node())}  {clock}", style="bold")]
    if now.gpus:
        parts += [Text(), _gpus(now.gpus, width), *_remarks(now.gpus)]
    if now.note:
        parts += [Text(), Text(printable(now.note), style="yellow")]
    for job in now.jobs:
        parts += [Text(), *_job(job, now, width)]
    if not now.jobs:
        parts += [Text(), Text("no run of brim goes on here", style="dim")]
    parts += [Text(), Text(host_line(now.host))]
    if any(gpu.processes for gpu in now.gpus):
        parts += [Text(), _processes(now, width)]
    if now.gpus:
        parts += [Text(), Text(LEGEND, style="dim")]
    return Group(*parts)


def host_line(host: HostReading) -> str:
    """CPU and RAM in one line.

    >>> host_line(HostReading(1.5, 8, 40.0, 3.2, 12.0, 2 * GIB, 4 * GIB, True))
    'CPU 40 % of 1.5 cores (of 8), throttled in 12 % of periods, load 3.2; RAM 2.0 of 4.0 GiB (limit of the cgroup)'
    """
    cores = f"{host.cores:g} cores" + ("" if host.cores == host.machine_cores else f" (of {host.machine_cores})")
    parts = [f"CPU {_percent(host.cpu)} of {cores}"]
    if host.throttled is not None:
        parts.append(f"throttled in {_percent(host.throttled)} of periods")
    if host.load is not None:
        parts.append(f"load {host.load:.1f}")
    limit = " (limit of the cgroup)" if host.is_limited else ""
    return f"{', '.join(parts)}; RAM {_of(_gib(host.memory_used), _gib(host.memory_total), 'GiB')}{limit}"


def _gpus(gpus: tuple[GpuReading, ...], width: int) -> RenderableType:
    clocks = [_of(_count(gpu.sm_clock), _count(gpu.sm_clock_max), "MHz") for gpu in gpus]
    return fitting_table(
        [
            FittingColumn("GPU", [gpu.label for gpu in gpus], 0, right=False),
            FittingColumn("name", [gpu.name.removeprefix("NVIDIA ") or UNKNOWN for gpu in gpus], 5, 6, right=False),
            FittingColumn("memory", [_of(_gib(gpu.memory_used), _gib(gpu.memory_total), "GiB") for gpu in gpus], 0),
            FittingColumn("duty\ncycle", [_percent(gpu.duty_cycle) for gpu in gpus], 0),
            FittingColumn("SM", [_percent(gpu.sm) for gpu in gpus], 1),
            FittingColumn("tensor", [_percent(gpu.tensor) for gpu in gpus], 2),
            FittingColumn("DRAM", [_percent(gpu.dram) for gpu in gpus], 3),
            FittingColumn("power", [_of(_count(gpu.power), _count(gpu.power_limit), "W") for gpu in gpus], 4),
            FittingColumn("SM clock", clocks, 6),
            FittingColumn("temp.", [_with(_count(gpu.temperature), "C") for gpu in gpus], 7),
            FittingColumn("PCIe\nin / out", [_traffic(gpu) for gpu in gpus], 8),
            FittingColumn("PCIe\nlink", [_pcie_link(gpu) for gpu in gpus], 9),
        ],
        width,
    )


def _remarks(gpus: tuple[GpuReading, ...]) -> list[RenderableType]:
    """What slows a card down, or why it tells nothing."""
    remarks: dict[str, list[str]] = {}
    for gpu in gpus:
        if gpu.throttling:
            remarks.setdefault(f"throttled: {', '.join(gpu.throttling)}", []).append(gpu.label)
        if gpu.trouble:
            remarks.setdefault(f"no answer: {printable(gpu.trouble)}", []).append(gpu.label)
    return [Text(f"GPU {', '.join(labels)} {remark}", style="yellow") for remark, labels in remarks.items()]


def _processes(now: Snapshot, width: int) -> RenderableType:
    """Who holds memory where, with the run that it belongs to."""
    runs = {pid: job.folder.name for job in now.jobs for pid in job.processes}
    rows = [(gpu, process) for gpu in now.gpus for process in gpu.processes or ()]
    rows.sort(key=lambda pair: (pair[0].label, -(pair[1].memory or 0)))
    return fitting_table(
        [
            FittingColumn("GPU", [gpu.label for gpu, _ in rows], 0, right=False),
            FittingColumn("process", [str(process.pid) for _, process in rows], 0),
            FittingColumn("memory", [_with(_gib(process.memory), "GiB") for _, process in rows], 0),
            FittingColumn("run", [runs.get(process.pid, "") for _, process in rows], 2, 12, right=False),
            FittingColumn("command", [process.name or UNKNOWN for _, process in rows], 1, 12, right=False),
        ],
        width,
    )


def _job(job: RunningJob, now: Snapshot, width: int) -> list[RenderableType]:
    """Its folder, and below it how far it is and how it goes."""
    cards = sorted({gpu.label for gpu in now.gpus for one in gpu.processes or () if one.pid in job.processes})
    facts = [f"process {', '.join(map(str, job.processes))}"] if job.processes else []
    facts += [f"on {printable(job.host)}"] if job.host else []
    facts += [f"GPU {', '.join(cards)}"] if cards else []
    head = f"{shown_path(str(job.folder))}  {job.model}"
    title = Text.assemble((printable(head.rstrip()), "bold"), f"  ({', '.join(facts)})")
    return [title, *(Text(f"  {line}") for line in flowing(job_facts(job), width - 2))]


def job_facts(job: RunningJob) -> list[str]:
    """How far it is and how it goes, each fact in a few words.

    >>> from pathlib import Path
    >>> job_facts(RunningJob(Path("a"), (1,), step=50, planned_steps=200, epoch=2, loss=0.5, steps_per_second=10.0))
    ['step 50 of 200 (25 %)', 'epoch 2', 'loss 0.5000', '10.0 steps/s', '15.0 s left']
    """
    facts = []
    if job.step is not None:
        share = f" ({100 * job.step / job.planned_steps:.0f} %)" if job.planned_steps else ""
        facts.append(f"step {job.step:,}" + (f" of {job.planned_steps:,}" if job.planned_steps else "") + share)
    facts += [] if job.epoch is None else [f"epoch {job.epoch:,}"]
    facts += [] if job.loss is None else [f"loss {job.loss:.4f}"]
    facts += [] if job.steps_per_second is None else [f"{job.steps_per_second:,.1f} steps/s"]
    facts += [] if job.samples_per_second is None else [f"{job.samples_per_second:,.0f} samples/s"]
    facts += [show_shares(job.shares)] if job.shares else []
    if job.memory is not None:
        forecast = "" if job.forecast is None else f", forecast {_gib(job.forecast)}"
        facts.append(f"memory {_gib(job.memory)} GiB{forecast}")
    facts += [] if job.seconds_left is None else [f"{show_seconds(job.seconds_left)} left"]
    if job.quiet is not None and job.quiet > QUIET_SECONDS:
        facts.append(f"no number for {show_seconds(job.quiet)}")
    return facts or ["has written no number yet"]


def flowing(facts: Sequence[str], width: int) -> list[str]:
    """Facts in as few lines as they need; none is broken in two.

    >>> flowing(["step 50 of 200", "epoch 2", "loss 0.5000"], 26)
    ['step 50 of 200 · epoch 2', 'loss 0.5000']
    """
    lines = [""]
    for fact in facts:
        longer = f"{lines[-1]} · {fact}" if lines[-1] else fact
        lines = [*lines[:-1], longer] if len(longer) <= width or not lines[-1] else [*lines, fact]
    return lines


def shown_path(path: str) -> str:
    """A path, from here where it is below."""
    here = os.getcwd().rstrip("/") + "/"  # noqa: PTH109 - as a text to cut off
    return path.removeprefix(here)


def _percent(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:.0f} %"


def _gib(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / GIB:,.1f}"


def _count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def _with(number: str, unit: str) -> str:
    return number if number == UNKNOWN else f"{number} {unit}"


def _of(number: str, most: str, unit: str) -> str:
    if number == UNKNOWN:
        return UNKNOWN
    return f"{number} {unit}" if most == UNKNOWN else f"{number} of {most} {unit}"


def _traffic(gpu: GpuReading) -> str:
    ways = [UNKNOWN if way is None else f"{way / MEGA:,.0f}" for way in (gpu.pcie_in, gpu.pcie_out)]
    return UNKNOWN if ways == [UNKNOWN, UNKNOWN] else f"{' / '.join(ways)} MB/s"


def _pcie_link(gpu: GpuReading) -> str:
    if gpu.pcie_generation is None or gpu.pcie_width is None:
        return UNKNOWN
    return f"{gpu.pcie_generation}.0 x{gpu.pcie_width}"
