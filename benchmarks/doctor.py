"""Planted faults, and what the doctor says of them: ``python benchmarks/doctor.py [NAME ...] [--json FILE]``.

Each script of ``tests/doctor/planted`` says in its first line which cause it has, or ``none``. The doctor runs every
one as a user would, and is right if it names that cause first; a script without a fault is to have no finding. Scripts
whose name begins with ``cuda`` need a GPU.

With ``--apply`` the cure of the planted cause is tried too, and the prediction is judged by it: the share of the step
that is lost within 5 points, and the ratio within 25 % where it is above 1.5.

With ``--json`` results are written after every script, and those that are there already are not run again: a run that
was interrupted goes on where it was. ``--again`` runs all.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from about import about

from brim.doctor.diagnosis import PATIENCE, Diagnosis, diagnose
from brim.doctor.treatment import treat
from brim.errors import BrimError

PLANTED = Path(__file__).parents[1] / "tests" / "doctor" / "planted"
SECONDS, SECONDS_APPLIED = 40.0, 90.0  # for a script, and for the cures of one: measured on two cores
POINTS, RATIO, FROM_RATIO = 0.05, 0.25, 1.5  # how far a prediction may be off, and from which ratio on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="scripts; all by default")
    parser.add_argument("--only", default="", help="scripts whose names contain this; several with commas")
    parser.add_argument("--json", type=Path, help="where results are written, and read to go on")
    parser.add_argument("--again", action="store_true", help="run scripts that have a result already")
    parser.add_argument("--observations", type=Path, help="a folder for what was seen of each: the tests' recordings")
    parser.add_argument(
        "--apply", action="store_true", help="try the cures, and compare their gain with the prediction"
    )
    options = parser.parse_args()
    rows = {} if options.again else before(options.json, options.apply)
    wanted = scripts(options.names, options.only)
    left = [script for script in wanted if script.stem not in rows]
    each = SECONDS + (SECONDS_APPLIED if options.apply else 0.0)
    print(f"{len(left)} of {len(wanted)} scripts to run, some {len(left) * each / 60:.0f} minutes", flush=True)
    started = time.monotonic()
    for number, script in enumerate(left, start=1):
        rows[script.stem] = examined(script, options.observations, options.apply)
        if options.json:
            write(options.json, list(rows.values()))
        passed = time.monotonic() - started
        print(
            f"      {number} of {len(left)}, some {passed / number * (len(left) - number) / 60:.0f} minutes left",
            flush=True,
        )
    sys.exit(summed_up([rows[script.stem] for script in wanted]))


def before(file: Path | None, applies: bool) -> dict[str, dict[str, object]]:
    """What an earlier run has found. Without cures it is of no use to a run that tries them; failures are run again."""
    if file is None or not file.exists():
        return {}
    rows = json.loads(file.read_text())["scripts"]
    return {row["script"]: row for row in rows if "error" not in row and (row.get("applied") or not applies)}


def write(file: Path, rows: list[dict[str, object]]) -> None:
    """Whole or not at all: an interrupted run leaves what there was."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"about": about(), "scripts": rows}, indent=1) + "\n")
    new.replace(file)


def summed_up(rows: list[dict[str, object]]) -> int:
    """The last lines, and the exit code: 1 where something is wrong."""
    right = [row for row in rows if row["right"]]
    print(
        f"{len(right)} of {len(rows)} right, {sum(row['expected'] == 'none' for row in rows)} of them without a fault"
    )
    judged = [row["prediction"] for row in rows if row.get("prediction")]
    close = [one for one in judged if one["share_is_close"] and one["ratio_is_close"]]  # type: ignore[index]
    if judged:
        print(f"{len(close)} of {len(judged)} predictions close")
    return 0 if len(right) == len(rows) and len(close) == len(judged) else 1


def scripts(names: list[str], only: str) -> list[Path]:
    parts = [part for part in only.split(",") if part]
    found = [script for script in sorted(PLANTED.glob("*.py")) if not names or script.stem in names]
    found = [script for script in found if not parts or any(part in script.stem for part in parts)]
    return [script for script in found if torch.cuda.is_available() or not script.stem.startswith("cuda")]


def examined(script: Path, folder: Path | None, applies: bool) -> dict[str, object]:
    """One script's line of the table, printed."""
    expected, started = planted_cause(script), time.monotonic()
    try:
        diagnosis = diagnose(script)
    except BrimError as error:
        print(f"WRONG {script.stem:22} {expected:22} {error}", flush=True)
        return {"script": script.stem, "expected": expected, "found": [], "right": False, "error": str(error)}
    found = [finding.cause for finding in diagnosis.findings]
    right = (found[:1] or ["none"]) == [expected]
    if folder is not None:
        record(diagnosis, folder / f"{script.stem}.json")
    shares = " ".join(f"{name} {100 * share:.0f}" for name, share in diagnosis.shares.as_dict().items())
    names = ", ".join(found) or "none"
    print(f"{'ok   ' if right else 'WRONG'} {script.stem:22} {expected:22} found {names:40} {shares}", flush=True)
    for finding in diagnosis.findings[:1]:
        print(f"      {finding.evidence}")
    seconds = time.monotonic() - started
    treatments = treated(script, diagnosis) if applies else []
    return {
        "script": script.stem,
        "expected": expected,
        "found": found,
        "right": right,
        "shares": diagnosis.shares.as_dict(),
        "gains": [finding.gain for finding in diagnosis.findings],
        "diffs": sorted({suggestion.cause for suggestion in diagnosis.suggestions}),
        "step_ms": 1e3 * diagnosis.step,
        "of_reachable": diagnosis.of_reachable,
        "load": diagnosis.seen.host.load,
        "seconds": round(seconds, 1),
        "applied": applies,
        "treatments": treatments,
        "prediction": judged(expected, diagnosis, treatments),
    }


def treated(script: Path, diagnosis: Diagnosis) -> list[dict[str, object]]:
    """What the cures brought, printed beside what was predicted."""
    try:
        done = treat(script, (), diagnosis, PATIENCE, lambda _: None)
    except BrimError as error:
        print(f"      the cures could not be tried: {error}")
        return []
    predicted = {finding.cause: finding.gain for finding in diagnosis.findings}
    for treatment in done:
        gain, expected = treatment.gain, predicted.get(treatment.cause)
        measured = "" if gain is None else f"{gain.ratio:.2f} x ({gain.low:.2f} to {gain.high:.2f})"
        told = "" if expected is None else f", predicted {expected:.2f} x"
        print(f"      {treatment.name}: {measured}{told}; {treatment.said}", flush=True)
    return [treatment.as_json() for treatment in done]


def judged(expected: str, diagnosis: Diagnosis, treatments: list[dict[str, object]]) -> dict[str, object] | None:
    """The prediction for the planted cause beside what its cure brought; None where one of them is missing."""
    finding = next((finding for finding in diagnosis.findings if finding.cause == expected), None)
    gain = next((each["gain"] for each in treatments if each["cause"] == expected and each["gain"]), None)
    if finding is None or finding.gain is None or gain is None:
        return None
    ratio = float(gain["ratio"])  # type: ignore[index]
    lost, predicted = 1.0 - 1.0 / max(1.0, ratio), 1.0 - 1.0 / finding.gain
    return {
        "share": predicted,
        "measured_share": lost,
        "ratio": finding.gain,
        "measured_ratio": ratio,
        "share_is_close": abs(lost - predicted) <= POINTS,
        "ratio_is_close": ratio <= FROM_RATIO or abs(finding.gain / ratio - 1.0) <= RATIO,
    }


def planted_cause(script: Path) -> str:
    return script.read_text().splitlines()[0].partition("cause:")[2].strip()


def record(diagnosis: Diagnosis, file: Path) -> None:
    """What was seen, with few digits: the rules are tested on it without running anything."""
    seen = asdict(diagnosis.seen)
    seen["losses"], seen["files"] = [], []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rounded(seen), indent=1) + "\n")


def rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return value


if __name__ == "__main__":
    main()
