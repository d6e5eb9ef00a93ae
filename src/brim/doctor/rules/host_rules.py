"""The host: threads, garbage, a CPU that is taken away."""

from brim.doctor.observation import Host, LiveTrial, Observation, Window
from brim.doctor.order import Cures
from brim.doctor.rules.finding import WORTH_TELLING, Finding, gain_of, milliseconds, percent, those_found
from brim.doctor.shares import Shares

GARBAGE = 0.03  # of the time
THROTTLED = 0.02
WAITING_FOR_DISK = 0.05
CROWDED = 0.1  # of the time: the script had to wait for a core so long


def host_findings(seen: Observation, shares: Shares) -> list[Finding]:
    """What the machine and Python take from the training."""
    window = seen.timed
    if window is None:
        return []
    # Threads that wait for one that has no core are slow in a sound script too: that is a note.
    found = [] if is_crowded_out(seen) else those_found(_threads(seen))
    if window.garbage >= GARBAGE * window.seconds:
        found.append(_garbage(window))
    if window.throttled >= THROTTLED * window.seconds:
        found.append(_throttled(window, seen.host))
    if window.io_wait >= WAITING_FOR_DISK * window.seconds:
        found.append(_disk(window))
    return found


def is_crowded_out(seen: Observation) -> bool:
    """Whether others than the script itself have the cores that it should have."""
    host, window, loader = seen.host, seen.timed, seen.train_loader
    is_alone = host.threads <= host.cores and not host.children and (loader is None or not loader.num_workers)
    return is_alone and window is not None and window.in_line >= CROWDED * window.seconds


def best_threads(seen: Observation) -> LiveTrial | None:
    """The number of threads that was clearly better than the script's."""
    trials = [trial for trial in seen.trials if trial.name == "threads" and trial.step > 0]
    best = min(trials, key=lambda trial: trial.step, default=None)
    if best is None or seen.timed is None or best.step > 0.9 * best.before:
        return None
    return best if best.saved_of(seen.timed) >= WORTH_TELLING else None


def _threads(seen: Observation) -> Finding | None:
    """Fewer threads were tried while the script went on: what they bring is measured, not guessed."""
    assert seen.timed is not None
    best = best_threads(seen)
    if best is None:
        return None
    loader = seen.train_loader
    workers = 0 if loader is None else loader.num_workers
    beside = f" beside {workers} worker processes" if workers else ""
    share = min(best.saved_of(seen.timed), 0.99)
    return Finding(
        cause="too-many-threads",
        what=f"torch uses {seen.host.threads} threads on {seen.host.cores} cores{beside}, and they wait for each other",
        evidence=f"the step alone takes {milliseconds(best.before)} with {seen.host.threads} threads and"
        f" {milliseconds(best.step)} with {best.value}, tried in turns",
        cure=f"torch.set_num_threads({best.value}), or OMP_NUM_THREADS={best.value}",
        share=share,
        gain=gain_of(share),
        cures=Cures(threads=best.value),
    )


def _garbage(window: Window) -> Finding:
    share = window.garbage / window.seconds
    pause = window.garbage / max(1, window.collections)
    return Finding(
        cause="garbage-collection",
        what="Python's garbage collector goes through the script's objects again and again",
        evidence=f"{window.collections} collections of {milliseconds(pause)} in {window.steps} steps,"
        f" {percent(share)} of the time",
        cure="gc.collect(); gc.freeze() after the data are loaded, so that they are not looked at again; no"
        " gc.collect() in the loop; keep samples in tensors or arrays instead of Python objects",
        share=share,
        gain=gain_of(share),
        cures=Cures(freeze_garbage=True),
    )


def _throttled(window: Window, host: Host) -> Finding:
    share = min(1.0, window.throttled / window.seconds)
    return Finding(
        cause="cpu-throttled",
        what="the container's CPU limit stops the training again and again",
        evidence=f"its cgroup was throttled for {window.throttled:.1f} s of {window.seconds:.1f} s, with"
        f" {host.cores} cores allowed",
        cure="ask for more CPU (cpu.max, Kubernetes limits), or use fewer threads and workers than it has cores",
        share=share,
        gain=gain_of(share),
        cures=Cures(threads=host.cores) if host.threads > host.cores else Cures(),
    )


def _disk(window: Window) -> Finding:
    share = min(1.0, window.io_wait / window.seconds)
    return Finding(
        cause="slow-storage",
        what="the main process waits for a disk",
        evidence=f"{window.io_wait:.2f} s of {window.seconds:.1f} s, {window.major_faults} pages read in",
        cure="keep the data in memory or on a local disk, read them in one go (shards), or let workers wait for them",
        share=share,
        gain=gain_of(share),
    )
