"""Planted faults, and what the doctor says of them: ``python benchmarks/doctor.py [NAME ...] [--json FILE]``.

Each script of ``tests/doctor/planted`` says in its first line which cause it has, or ``none``. The doctor runs every
one as a user would, and is right if it names that cause first; a script without a fault is to have no finding. Scripts
whose name begins with ``cuda`` need a GPU.
"""

import argparse
import json
from pathlib import Path

import torch
from about import about

from brim.doctor.diagnosis import PATIENCE, Diagnosis, diagnose
from brim.doctor.treatment import treat
from brim.errors import BrimError

PLANTED = Path(__file__).parents[1] / "tests" / "doctor" / "planted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scripts; all by default")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--observations", type=Path, help="a folder for what was seen of each: the tests' recordings")
    parser.add_argument(
        "--apply", action="store_true", help="try the cures, and compare their gain with the prediction"
    )
    options = parser.parse_args()
    rows = [examined(script, options.observations, options.apply) for script in scripts(options.names)]
    right = sum(row["right"] for row in rows)
    print(f"{right} of {len(rows)} right")
    if options.json:
        options.json.write_text(json.dumps({"about": about(), "scripts": rows}, indent=1) + "\n")


def scripts(names: list[str]) -> list[Path]:
    found = [script for script in sorted(PLANTED.glob("*.py")) if not names or script.stem in names]
    return [script for script in found if torch.cuda.is_available() or not script.stem.startswith("cuda")]


def examined(script: Path, folder: Path | None, applies: bool) -> dict[str, object]:
    """One script's line of the table, printed."""
    expected = planted_cause(script)
    try:
        diagnosis = diagnose(script)
    except BrimError as error:
        print(f"WRONG {script.stem:22} {expected:22} {error}")
        return {"script": script.stem, "expected": expected, "found": [], "right": False, "error": str(error)}
    found = [finding.cause for finding in diagnosis.findings]
    right = (found[:1] or ["none"]) == [expected]
    if folder is not None:
        record(diagnosis, folder / f"{script.stem}.json")
    shares = " ".join(f"{name} {100 * share:.0f}" for name, share in diagnosis.shares.as_dict().items())
    print(
        f"{'ok   ' if right else 'WRONG'} {script.stem:22} {expected:22} found {', '.join(found) or 'none':40} {shares}"
    )
    for finding in diagnosis.findings[:1]:
        print(f"      {finding.evidence}")
    return {
        "script": script.stem,
        "expected": expected,
        "found": found,
        "right": right,
        "shares": diagnosis.shares.as_dict(),
        "gains": [finding.gain for finding in diagnosis.findings],
        "step_ms": 1e3 * diagnosis.step,
        "of_reachable": diagnosis.of_reachable,
        "treatments": treated(script, diagnosis) if applies else [],
    }


def treated(script: Path, diagnosis: Diagnosis) -> list[dict[str, object]]:
    """What the cures brought, printed beside what was predicted."""
    done = treat(script, (), diagnosis, PATIENCE, lambda _: None)
    predicted = {finding.cause: finding.gain for finding in diagnosis.findings}
    for treatment in done:
        gain, expected = treatment.gain, predicted[treatment.cause]
        measured = "" if gain is None else f"{gain.ratio:.2f} x ({gain.low:.2f} to {gain.high:.2f})"
        told = "" if expected is None else f", predicted {expected:.2f} x"
        print(f"      {treatment.name}: {measured}{told}; {treatment.said}")
    return [treatment.as_json() for treatment in done]


def planted_cause(script: Path) -> str:
    return script.read_text().splitlines()[0].partition("cause:")[2].strip()


def record(diagnosis: Diagnosis, file: Path) -> None:
    """What was seen, with few digits: the rules are tested on it without running anything."""
    seen = diagnosis.seen.as_json()
    seen["losses"], seen["files"] = [], []
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
