"""Memory that runs out on one of several ranks, at random moments: the training must be what it would have been.

    python benchmarks/rank_soak.py [--trials 100] [--seed 0] [--json out.json]
    python benchmarks/rank_soak.py --only 17      # one trial again, with what its ranks said; its folder is kept

Every trial is a random small training of 2 to 4 ranks (gloo, CPU), whole replicas (ddp) and sharded ones (fsdp) in
turn. One rank runs out of memory in the forward or backward pass, as it enters the exchange of gradients, or in an
evaluation; then, in some, another one or the same again. No trial may hang or end before its training does, and all
ranks must have the weights, steps, losses and metrics of a single process that nothing befell. Needs Linux.
"""

import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from about import about
from rank_soaking.judgement import difference, what_differs
from rank_soaking.mischief import Mischief
from rank_soaking.recipe import STAGES, STRATEGIES, Recipe, random_recipe
from rank_soaking.training import Trained, train
from soaking.child import Child, fork, warm_up

from brim.errors import RanksLost

LIMIT = 40.0  # seconds for all ranks of a trial, which take one or two; a rank that waits for another has ten minutes
MEMORY_DISK = Path("/dev/shm")
STRIKES = "strikes.jsonl"
HUNG, LOST, DIFFERS, IDLE = "hung", "lost", "other results", "nothing ran out"


@dataclass
class Trial:
    """``failure`` is empty where all went as promised."""

    number: int
    recipe: Recipe
    failure: str = ""
    what: str = ""
    seconds: float = 0.0
    difference: float | None = None
    strikes: list[dict[str, Any]] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def fail(self, failure: str, what: str) -> None:
        self.failure, self.what = failure, what


def be_rank(recipe: Recipe, rank: int, world: int, port: int, folder: Path) -> int:
    """In a process of its own: train, and leave what came of it in a file."""
    mischief = Mischief(recipe.faults if world > 1 else (), rank, folder / STRIKES)
    if world > 1:
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
        )  # fmt: skip
        mischief.strike_exchanges()
    try:
        trained = train(recipe, mischief, rank, world, folder)
    except Exception as error:
        traceback.print_exc()
        return int(getattr(error, "exit_code", 1))
    torch.save(vars(trained), folder / f"{world}-{rank}.pt")
    return 0


def launch(trial: Trial, world: int, folder: Path) -> list[Trained] | None:
    """What came of each rank; None, and the trial failed, where one of them did not get there."""
    port = free_port()
    ranks = [fork(lambda r=rank: be_rank(trial.recipe, r, world, port, folder)) for rank in range(world)]  # type: ignore[misc]
    until = time.monotonic() + LIMIT
    trial.codes = codes = [child.join(max(0.0, until - time.monotonic())) for child in ranks]
    trial.said = _last_words(ranks, codes)
    if any(codes) or None in codes:
        failure = HUNG if None in codes else LOST
        trial.fail(failure, f"exit codes {codes}: " + "; ".join(map(_error_in, trial.said)))
        return None
    return [Trained(**torch.load(folder / f"{world}-{rank}.pt")) for rank in range(world)]


def _last_words(ranks: list[Child], codes: list[int | None]) -> list[str]:
    """What every rank has said; one that hangs says where."""
    for child, code in zip(ranks, codes, strict=True):
        if code is None:
            child.signal(6)  # SIGABRT, upon which faulthandler writes where each thread is
            child.join(5)
    said = [child.words(20_000) for child in ranks]
    for child in ranks:
        child.close()
    return said


def _error_in(said: str) -> str:
    """The last line that names an error."""
    named = [line for line in said.splitlines() if "Error" in line or line.startswith(("brim.", "torch."))]
    return named[-1][:200] if named else "nothing said"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_trial(number: int, seed: int, home: Path) -> Trial:
    """Stages and strategies take turns, everything else is random."""
    stage, strategy = STAGES[number // len(STRATEGIES) % len(STAGES)], STRATEGIES[number % len(STRATEGIES)]
    trial = Trial(number, random_recipe(Random(f"{seed} {number}"), strategy, stage))
    folder = home / str(number)
    folder.mkdir()
    expected = launch(trial, 1, folder)
    if expected is None:
        trial.what = f"without any fault: {trial.what}"
        return trial
    began = time.monotonic()
    found = launch(trial, trial.recipe.world, folder)
    trial.seconds = round(time.monotonic() - began, 2)
    struck = folder / STRIKES
    trial.strikes = [json.loads(line) for line in struck.read_text().splitlines()] if struck.exists() else []
    if found is not None:
        trial.difference = max(difference(of_rank, expected[0]) for of_rank in found)
        if (wrong := what_differs(trial.recipe, found, expected[0])) is not None:
            trial.fail(DIFFERS, wrong)
        elif not trial.strikes:
            trial.fail(IDLE, "the recipe's faults never came to pass, so this trial shows nothing")
    return trial


def summary_of(trials: list[Trial]) -> dict[str, Any]:
    """By strategy and stage: trials about it, faults of it in all trials, and the trials that failed after one."""
    table: dict[str, Any] = {}
    for strategy in STRATEGIES:
        own = [trial for trial in trials if trial.recipe.strategy == strategy]
        for stage in STAGES:
            table[f"{strategy} {stage}"] = {
                "trials": sum(trial.recipe.faults[0].stage == stage for trial in own),
                "faults": sum(strike["stage"] == stage for trial in own for strike in trial.strikes),
                **Counter(trial.failure for trial in own if trial.failure and _suspect(trial) == stage),
            }
    return table


def _suspect(trial: Trial) -> str:
    """The stage of the last fault before it went wrong, on a rank that was not merely left by the others."""
    left = [rank for rank, code in enumerate(trial.codes) if code == RanksLost.exit_code]
    own = [strike["stage"] for strike in trial.strikes if strike["rank"] not in left]
    return str(own[-1] if own else trial.recipe.faults[0].stage)


def show(table: dict[str, Any]) -> None:
    kinds = ("trials", "faults", HUNG, LOST, DIFFERS, IDLE)
    print(f"{'':16}" + "".join(f"{kind:>17}" for kind in kinds))
    for name, row in table.items():
        print(f"{name:16}" + "".join(f"{row.get(kind, 0):17}" for kind in kinds))


def results_of(trials: list[Trial], seed: int, seconds: float) -> dict[str, Any]:
    failures = [
        {"trial": trial.number, "seed": seed, "failure": trial.failure, "what": trial.what, "strikes": trial.strikes,
         "recipe": asdict(trial.recipe)}
        for trial in trials if trial.failure
    ]  # fmt: skip
    return {
        **about(), "seed": seed,
        "trials": len(trials), "seconds": round(seconds, 1), "faults": sum(len(trial.strikes) for trial in trials),
        "longest_trial_s": max(trial.seconds for trial in trials),
        "largest_difference": max((t.difference for t in trials if t.difference is not None), default=None),
        "worlds": dict(sorted(Counter(str(trial.recipe.world) for trial in trials).items())),
        "models": dict(sorted(Counter(trial.recipe.model for trial in trials).items())),
        "stages": summary_of(trials), "failures": failures,
    }  # fmt: skip


def main() -> None:
    arguments = _arguments()
    warm_up()
    disk = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
    home = Path(tempfile.mkdtemp(prefix="brim-rank-soak-", dir=disk))
    if arguments.only is not None:
        trial = run_trial(arguments.only, arguments.seed, home)
        for rank, said in enumerate(trial.said):
            print(f"--- rank {rank} said:\n{said}")
        print(f"--- {trial.recipe}\n--- struck: {trial.strikes}\n--- {trial.failure or 'as promised'}: {trial.what}")
        print(f"its folder: {home}")
        sys.exit(1 if trial.failure else 0)
    began, trials = time.monotonic(), list[Trial]()
    for number in range(arguments.trials):
        trial = run_trial(number, arguments.seed, home)
        shutil.rmtree(home / str(number))
        trials.append(trial)
        about = f"{trial.recipe.strategy}, {trial.recipe.world} ranks, {trial.recipe.faults[0].stage}"
        verdict = f"{trial.failure.upper()}: {trial.what}" if trial.failure else "as promised"
        print(f"{number}: {about}, {len(trial.strikes)} faults, {trial.seconds:.1f} s: {verdict}", flush=True)
    home.rmdir()
    results = results_of(trials, arguments.seed, time.monotonic() - began)
    show(results["stages"])
    failed = [trial.number for trial in trials if trial.failure]
    print(f"{len(trials)} trials, {results['faults']} faults, {len(failed)} failures in {results['seconds']:.0f} s")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    for number in failed:
        print(f"again: python benchmarks/rank_soak.py --seed {arguments.seed} --only {number}")
    sys.exit(1 if failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one trial again")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
