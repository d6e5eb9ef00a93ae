"""What every result names beside its figures: machine, cores, threads, versions, commit and date.

Every script of this folder writes ``about()`` at the head of its JSON, so that a figure can be traced to the code and
the machine that it was measured on.
"""

import os
import platform
import subprocess
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
CODE = ("src", "benchmarks", ":!benchmarks/results")  # what a figure depends on


def about(*packages: str) -> dict[str, Any]:
    """The facts, with the versions of the packages that are named and installed.

    >>> about("numpy")["cores"] >= 1
    True
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_name(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),  # of everything on the machine at that moment
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{package: installed for package in packages if (installed := version_of(package)) is not None},
        "commit": commit(),
        "date": date.today().isoformat(),
    }


def cpu_name() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str:
    """The commit that is measured; "+changes" where the code is not that of the commit."""
    found = _git("rev-parse", "--short", "HEAD")
    if found is None or found.returncode:
        return "unknown"
    changed = _git("diff", "--quiet", "HEAD", "--", *CODE)
    return found.stdout.strip() + ("+changes" if changed is not None and changed.returncode else "")


def _git(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return None
