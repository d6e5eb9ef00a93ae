"""Kills, faults and random configurations, for as long as one likes: every training must end as promised.

    python benchmarks/soak.py [kills faults configurations] [--minutes 60] [--seed 0] [--json out.json]
    python benchmarks/soak.py --only kills:17      # one trial again, from its seed; its folder is kept

``kills``: kill -9 and signals at random moments, resumed until done: the same bits. ``faults``: full disks, damaged
checkpoints, dead loader processes, memory that runs out, NaN, unreadable samples. ``configurations``: random settings,
models and data, straight and interrupted, whole and sliced. Needs Linux; uses one core.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import torch
from about import about
from soaking.child import warm_up
from soaking.configurations import configuration
from soaking.faults import fault
from soaking.kills import kill
from soaking.outcome import WentWrong
from soaking.recipe import Recipe
from soaking.training import train
from soaking.trial import Trial

PARTS: dict[str, Callable[[Trial], None]] = {"kills": kill, "faults": fault, "configurations": configuration}
MEMORY_DISK = Path("/dev/shm")  # a process that is killed loses nothing there, and flushing costs nothing


def run_trial(part: str, number: int, seed: int, home: Path, keep: bool = False) -> tuple[Trial, str | None]:
    """One trial, and what went wrong in it."""
    name = f"{part}:{number}"
    trial = Trial(name, number, home / name.replace(":", "-"), Random(f"{seed} {name}"))
    wrong = None
    try:
        PARTS[part](trial)
        trial.wait_for_orphans()
    except WentWrong as error:
        wrong = str(error)
    except Exception:  # a mistake of the trial's own must not end the others
        wrong = traceback.format_exc()
    finally:
        trial.end()
        if not keep:
            shutil.rmtree(trial.folder, ignore_errors=True)
    return trial, wrong


def run_part(part: str, seed: int, seconds: float, most: int | None, home: Path) -> dict[str, Any]:
    """Trials from number 0 on, until the time is up or there were enough."""
    began, kinds, failures, number = time.monotonic(), Counter[str](), [], 0
    while number != most and time.monotonic() - began < seconds:
        trial, wrong = run_trial(part, number, seed, home)
        kinds[trial.kind] += 1
        number += 1
        if wrong is not None:
            recipe = None if trial.recipe is None else asdict(trial.recipe)
            failures.append({"trial": trial.name, "seed": seed, "kind": trial.kind, "what": wrong, "recipe": recipe})
            print(f"\r{trial.name} ({trial.kind}): {wrong}", flush=True)
        _show(f"{part}: {number} trials, {len(failures)} failures, {time.monotonic() - began:.0f} s")
    print(flush=True)
    took = round(time.monotonic() - began, 1)
    return {"trials": number, "seconds": took, "kinds": dict(sorted(kinds.items())), "failures": failures}


def _show(line: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{line}", end="", flush=True)


def run_one(name: str, seed: int, home: Path) -> bool:
    part, number = name.split(":")
    trial, wrong = run_trial(part, int(number), seed, home, keep=True)
    for child in trial.children:
        print(f"--- process {child.pid} said:\n{child.said}")
    print(f"--- {name} ({trial.kind}): {wrong or 'as promised'}\n{trial.recipe}\nits folder: {trial.folder}")
    return wrong is None


def main() -> None:
    arguments = _arguments()
    if arguments.train is not None:  # the other end of soaking.child.start_fresh
        torch.set_num_threads(1)
        sys.exit(train(Recipe(**json.loads((arguments.train / "recipe.json").read_text())), arguments.train))
    warm_up()
    home = Path(tempfile.mkdtemp(prefix="brim-soak-", dir=MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None))
    if arguments.only is not None:
        sys.exit(0 if run_one(arguments.only, arguments.seed, home) else 1)
    results: dict[str, Any] = {"seed": arguments.seed}
    parts = arguments.parts or list(PARTS)
    for part in parts:
        print(f"{part} ...", flush=True)
        results[part] = run_part(part, arguments.seed, arguments.minutes * 60 / len(parts), arguments.trials, home)
        print(f"{part}: {results[part]['trials']} trials, {len(results[part]['failures'])} failures", flush=True)
    home.rmdir()
    results = {**about(), **results}  # last: it starts CUDA, after which trainings cannot be forked
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(1 if any(results[part]["failures"] for part in parts) else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}")
    parser.add_argument("--minutes", type=float, default=60, help="for all parts together")
    parser.add_argument("--trials", type=int, help="at most so many of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="PART:NUMBER", help="one trial again")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    odd = next((part for part in arguments.parts if part not in PARTS), None)
    if odd is not None:
        parser.error(f"{odd!r} is none of {', '.join(PARTS)}")
    return arguments


if __name__ == "__main__":
    main()
