"""Observations for tests of rules: ordinary ones, with what a test is about changed."""

from brim.doctor.observation import Host, LoaderSeen, Observation, Profile, Window
from brim.doctor.rules.finding import Finding


def loader(**changed):
    """Batches of 64 ready tensors of a row each, made in the main process at 1 ms a batch."""
    ordinary = {
        "dataset": "Rows", "length": 10_000, "batch_size": 64, "num_workers": 0, "persistent_workers": False,
        "prefetch_factor": None, "pin_memory": False, "default_collate": True, "batched_access": False,
        "line": "train.py:3", "trains": True, "batches": 100, "samples": 6400, "batch_bytes": 64 * 400,
        "batch_tensors": 2, "make_seconds": 1e-3, "make_cpu_seconds": 1e-3, "collate_seconds": 2e-4,
    }  # fmt: skip
    return LoaderSeen(**ordinary | changed)


def observed(*, host=None, step=0.01, data=0.0, window=None, **seen):
    """100 steps of 10 ms, of which ``data`` seconds each are waited for batches."""
    timed = Window(**{"steps": 100, "seconds": 100 * step, "data": 100 * data, "samples": 6400} | (window or {}))
    machine = Host(**{"cores": 4, "threads": 4} | (host or {}))
    return Observation(ended="measured", steps=300, host=machine, timed=timed, **seen)


def profiled(**changed):
    """Ten steps on a GPU that is busy all the time."""
    ordinary = {"steps": 10, "step": 0.01, "operators": 100, "compute": 0.01, "kernels": 100, "kernel_seconds": 0.01}
    return Profile(**ordinary | changed)


def finding(cause, line="", **more):
    """A cause, and where it is."""
    return Finding(cause, "what", "evidence", "cure", 0.5, line=line, **more)
