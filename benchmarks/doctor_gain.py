"""What ``brim doctor --apply`` brings to scripts as people write them first, and how long it takes.

    python benchmarks/doctor_gain.py [recommender lstm] [--json out.json]

The scripts of ``benchmarks/before`` stand as they are: triples that a DataLoader fetches one by one, and an LSTM over
windows with four workers. A row for each cure that was tried has its ratio with its interval, in turns with the script
as it is, and whether the losses are the same.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from about import about

SCRIPTS = Path(__file__).parent / "before"
NAMES = ("recommender", "lstm")


def examined(name: str) -> dict[str, Any]:
    """What the doctor says of one script, as it is called by a user."""
    began = time.monotonic()
    command = [sys.executable, "-m", "brim", "doctor", "--apply", "--json", str(SCRIPTS / f"{name}.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    seconds = round(time.monotonic() - began, 1)
    if done.returncode:
        return {"failed": done.returncode, "seconds": seconds}
    found = json.loads(done.stdout)
    found.pop("seen")  # long, and of no use without the script's process
    return {"seconds": seconds, **found}


def shown(name: str, row: dict[str, Any]) -> None:
    print(f"{name}: {row['seconds']} s", flush=True)
    for one in row.get("treatments", []):
        gain = one["gain"]
        ratio = "not measured" if not gain else f"{gain['ratio']:.2f} x ({gain['low']:.2f} to {gain['high']:.2f})"
        print(f"    {one['cause']}: {ratio}; {one['said']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SCRIPT", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: dict[str, Any] = {}
    for name in asked.names or NAMES:
        rows[name] = examined(name)
        if asked.json:
            asked.json.write_text(json.dumps({"about": about(), "scripts": rows}, indent=1) + "\n")
        shown(name, rows[name])


if __name__ == "__main__":
    main()
