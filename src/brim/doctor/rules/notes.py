"""What is worth knowing beside the findings: nothing of it costs time by itself."""

from brim.doctor.observation import Observation
from brim.doctor.rules.finding import milliseconds, percent
from brim.doctor.rules.host_rules import best_threads, is_crowded_out

BUSY = 1.5  # processes that want a core, for each core
FEW_STEPS = 10
UNEVEN = 3.0  # a slow step by an ordinary one
MUCH_PADDING = 0.3  # of the positions: sequences are never all of one length
MEBIBYTE = 1 << 20


def notes(seen: Observation) -> list[str]:
    """Sentences about what was seen."""
    found = list(seen.notes)
    window, loader, host = seen.timed, seen.train_loader, seen.host
    if window is not None and window.steps < FEW_STEPS:
        found.append(f"only {window.steps} steps could be timed: the numbers are rough")
    if is_crowded_out(seen):
        found.append(_crowded_out(seen))
    elif host.load > BUSY * host.cores:
        found.append(
            f"the machine was busy before the script began (load {host.load:.1f} on {host.cores} cores): times are"
            f" too long"
        )
    if any(optimizer.in_float64 for optimizer in seen.optimizers):
        found.append(
            "weights are float64, as arrays of numpy are by default: float32 is about twice as fast on a CPU, and far"
            " faster on a GPU, with other numbers"
        )
    if loader is not None and loader.pin_memory and host.device == "cpu":
        found.append("pin_memory=True does nothing here: there is no GPU to copy to")
    if loader is not None and loader.num_workers:
        held = loader.num_workers * (loader.prefetch_factor or 2) * loader.batch_bytes / MEBIBYTE
        pinned = ", and as much again page-locked" if loader.pin_memory and host.device == "cuda" else ""
        found.append(
            f"batches made ahead by {loader.num_workers} worker{'s' * (loader.num_workers > 1)} take up to"
            f" {held:,.{0 if held >= 10 else 1}f} MiB of shared memory{pinned}"
        )
    if loader is not None and loader.num_workers and loader.make_seconds is None:
        found.append(f"workers that are started with {loader.start_method} could not be timed")
    if loader is not None and loader.padding >= MUCH_PADDING:
        found.append(
            f"{percent(loader.padding)} of the positions in the batches are padding, which is computed like the rest"
            " unless it is packed: pad to the longest of each batch, and draw batches of similar lengths (which changes"
            " their order)"
        )
    if window is not None and window.step_seconds[1] and window.step_seconds[2] > UNEVEN * window.step_seconds[1]:
        found.append(
            f"steps are uneven: one in twenty takes more than {window.step_seconds[2] / window.step_seconds[1]:.1f}"
            " times as long as an ordinary one"
        )
    return found


def _crowded_out(seen: Observation) -> str:
    """How busy others kept the machine, and what would be better beside them."""
    window, best = seen.timed, best_threads(seen)
    assert window is not None
    waited = min(1.0, window.in_line / window.seconds)
    fewer = (
        f"; beside them OMP_NUM_THREADS={best.value} is faster, {milliseconds(best.step)} a step for"
        f" {milliseconds(best.before)} with {seen.host.threads} threads"
        if best is not None
        else ""
    )
    return (
        f"other processes keep the machine's cores busy, and the script waited for one {percent(waited)} of the time:"
        f" times are too long{fewer}"
    )
