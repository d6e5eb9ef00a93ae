"""Random and hostile bytes for every reader of files: each case is read, or refused with an error of brim's.

    python benchmarks/fuzz.py [READER ...] [--seconds 600] [--seed 0] [--json benchmarks/results/fuzz.json]
    python benchmarks/fuzz.py --case shards:17     # one case again, in this process; its files are kept

Valid files are changed as bytes and inside their formats, with sums put right, and read. A case fails where another
exception comes out, where the process ends, where it takes more than 4 GiB, and where it takes more than 5 seconds. A
case is made from the seed, its reader's name and its number alone. Needs Linux; uses one core.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from about import about
from fuzzing.reader import Outcome, try_case
from fuzzing.readers import READERS
from fuzzing.worker import Worker

MEMORY_DISK = Path("/dev/shm")
PROGRESS_SECONDS = 1.0


@dataclass
class Tally:
    """What came of a reader's cases so far."""

    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.outcomes.total()

    def add(self, outcome: Outcome, seconds: float, name: str, seed: int) -> None:
        if outcome.kind == "failed":
            command = f"python benchmarks/fuzz.py --seed {seed} --case {name}:{self.cases}"
            last = outcome.what.strip().splitlines()[-1][:200]
            self.failures.append({"case": f"{name}:{self.cases}", "error": last, "again": command})
        self.outcomes[outcome.kind] += 1
        self.seconds += seconds


def name_of_case(seed: int, reader: str, number: int) -> str:
    return f"{seed} {reader}:{number}"


def fuzz(names: list[str], seconds: float, seed: int) -> dict[str, Tally]:
    """Try cases until the time is over; the reader that had the least time is next."""
    tallies = {name: Tally() for name in names}
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None) as home:
        worker = Worker(Path(home))
        ends, told = time.monotonic() + seconds, 0.0
        while time.monotonic() < ends:
            name, tally = min(tallies.items(), key=lambda pair: pair[1].seconds)
            began = time.monotonic()
            outcome = worker.try_case(name, name_of_case(seed, name, tally.cases))
            tally.add(outcome, time.monotonic() - began, name, seed)
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                show_progress(tallies, ends - told)
        worker.close()
    return tallies


def show_progress(tallies: dict[str, Tally], left: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{in_words(tallies)}, {left:.0f} s left ", end="", file=sys.stderr, flush=True)


def in_words(tallies: dict[str, Tally]) -> str:
    failures = sum(len(tally.failures) for tally in tallies.values())
    return f"{sum(tally.cases for tally in tallies.values()):,} cases, {failures} failed"


def as_json(tallies: dict[str, Tally], seconds: float, seed: int) -> dict[str, Any]:
    return {
        **about(),
        "seed": seed,
        "seconds": seconds,
        "cases": sum(tally.cases for tally in tallies.values()),
        "failed": sum(len(tally.failures) for tally in tallies.values()),
        "readers": {
            name: {"cases": tally.cases, **{kind: tally.outcomes[kind] for kind in ("read", "refused", "failed")}}
            for name, tally in tallies.items()
        },
        "failures": [failure for tally in tallies.values() for failure in tally.failures],
    }


def again(case: str, seed: int) -> Outcome:
    """One case in this process; its files stay."""
    name, _, number = case.rpartition(":")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    outcome = try_case(READERS[name], name_of_case(seed, name, int(number)), folder)
    print(f"{outcome.kind}: {outcome.what}\nthe files: {folder}")
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}; all of them if none")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", metavar="READER:NUMBER")
    arguments = parser.parse_args()
    if arguments.case:
        sys.exit(again(arguments.case, arguments.seed).kind == "failed")
    unknown = set(arguments.readers) - set(READERS)
    if unknown:
        parser.error(f"no reader {unknown.pop()!r}; known are {', '.join(READERS)}")
    tallies = fuzz(arguments.readers or list(READERS), arguments.seconds, arguments.seed)
    print(f"\n{'reader':16}{'cases':>10}{'read':>10}{'refused':>10}{'failed':>10}")
    for name, tally in tallies.items():
        counts = (tally.cases, *(tally.outcomes[kind] for kind in ("read", "refused", "failed")))
        print(f"{name:16}" + "".join(f"{count:10,}" for count in counts))
    for failure in [failure for tally in tallies.values() for failure in tally.failures][:20]:
        print(f"{failure['case']}: {failure['error']}")
    print(f"{in_words(tallies)} in {arguments.seconds:g} s, seed {arguments.seed}")
    if arguments.json:
        written = as_json(tallies, arguments.seconds, arguments.seed)
        arguments.json.write_text(json.dumps(written, indent=2) + "\n")
    sys.exit(any(tally.failures for tally in tallies.values()))


if __name__ == "__main__":
    main()
