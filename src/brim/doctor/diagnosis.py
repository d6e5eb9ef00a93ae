"""From a script to what is wrong with it."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from brim.doctor.child_process import Ended, ScriptFailed, watch_script
from brim.doctor.edits.suggestion import Suggestion, suggestions
from brim.doctor.observation import Observation
from brim.doctor.order import OWN_FAULT, Order
from brim.doctor.rules.examine import examine, verdict
from brim.doctor.rules.finding import Finding
from brim.doctor.rules.host_rules import is_crowded_out
from brim.doctor.rules.notes import notes
from brim.doctor.shares import Shares, shares
from brim.doctor.stages import OBSERVE
from brim.errors import ConfigError

FEWEST = 3  # steps that can be timed
PATIENCE = 120.0
WORTH_ANOTHER = 20  # steps: with fewer, no pace is quick enough
OWN_FAILURE = "brim doctor itself failed while it watched the script, please report it"
PART_OF_IT = 0.4  # of a short script's time: setting changes and traces take the rest


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor has to say.

    Attributes:
        seen: Everything that was measured.
        shares: Of a step's time.
        ceiling: Seconds of the same step on batches that are already there.
        is_estimated: The ceiling is the step without its waiting for data: there was no loader to replay, or the cores
            were others' for too long.
        findings: Causes of lost time, the worst first.
        verdict: What the training is bound by.
        notes: What else is worth knowing.
        pace: At which it was measured; a script that ends soon needs a quick one.
        exit_code: The script's own, where it failed after it had been measured.
        suggestions: Cures as diffs of the user's files.
    """

    seen: Observation
    shares: Shares
    ceiling: float
    is_estimated: bool
    findings: list[Finding]
    verdict: str
    notes: list[str]
    pace: float = 1.0
    exit_code: int = 0
    suggestions: list[Suggestion] = field(default_factory=list)

    @property
    def step(self) -> float:
        """Seconds a step."""
        assert self.seen.timed is not None
        return self.seen.timed.step

    @property
    def of_reachable(self) -> float:
        """The speed as a share of the reachable one."""
        return min(1.0, self.ceiling / self.step) if self.step else 1.0

    def diff_for(self, finding: Finding) -> str:
        """The changes of the user's files that would cure a finding; empty where none is known."""
        return "".join(found.diff for found in self.suggestions if found.cause == finding.cause)

    def as_json(self) -> dict[str, Any]:
        seen = asdict(self.seen)
        seen.pop("losses")
        assert self.seen.timed is not None
        rate = self.seen.timed.samples_per_second
        return {
            "verdict": self.verdict,
            "samples_per_second": rate,
            "reachable_samples_per_second": rate / self.of_reachable if self.of_reachable else None,
            "step_ms": 1e3 * self.step,
            "ceiling_ms": 1e3 * self.ceiling,
            "ceiling_is_estimated": self.is_estimated,
            "share_of_reachable_speed": self.of_reachable,
            "shares": self.shares.as_dict(),
            "findings": [{**finding.as_json(), "diff": self.diff_for(finding)} for finding in self.findings],
            "notes": self.notes,
            "seen": seen,
        }


def diagnose(
    script: Path,
    arguments: tuple[str, ...] = (),
    patience: float = PATIENCE,
    say: Callable[[str], None] = lambda _: None,
    trace: Path | None = None,
    pace: float = 1.0,
) -> Diagnosis:
    """Run a script for some steps in a child process, and say where its time goes.

    Args:
        script: A Python file that trains with torch.
        arguments: Its own.
        patience: Seconds without a step after which it hangs.
        say: Told what happens.
        trace: Where to keep a trace of ten steps or more, for chrome://tracing or Perfetto.
        pace: By which the seconds of all measurements are multiplied.

    Raises:
        ConfigError: There is no such script.
        ScriptFailed: It failed, hangs, or did not train long enough to be measured.
    """
    if os.name != "posix":
        raise ConfigError("brim doctor needs Linux or macOS: it ends the script's processes by their group")
    if script.suffix == ".ipynb":
        raise ConfigError(f"{script} is a notebook; make a script of it first: jupyter nbconvert --to script {script}")
    if not script.is_file():
        raise ConfigError(
            f"there is no script {script}; brim doctor takes a Python file that trains: brim doctor train.py"
        )
    order = Order(str(script), arguments, pace=pace)
    ended = watch_script(order, patience, say, trace)
    if ended.seen is None and ended.exit_code < 0:
        # Once in some hundred runs a watched process crashed that does not by itself; why is not known.
        say(
            f"the process was ended by signal {-ended.exit_code}: once more, to see whether the script does that itself"
        )
        ended = watch_script(order, patience, say, trace)
    runs = 1
    # Of a third one there is need where the machine was slower in the first than in the second.
    while (seen := ended.seen) is not None and (runs == 1 or (runs == 2 and not _is_enough(seen, has_shares=True))):
        shorter = pace_for(seen, pace)
        if shorter is None:
            break
        say(f"the script ended after {seen.steps} steps: once more, with fewer of them for each measurement")
        ended, pace, runs = watch_script(replace(order, pace=shorter), patience, say, trace), shorter, runs + 1
    found = diagnosis(checked(ended, has_shares=True), pace)
    code = (ended.exit_code or 1) if found.seen.ended == "failed" else 0
    return replace(found, exit_code=code, suggestions=suggestions(found.seen, found.findings, Path.cwd()))


def pace_for(seen: Observation, pace: float) -> float | None:
    """At which pace everything can be measured before a short script ends; None where it need not or cannot be."""
    is_complete = seen.profile is not None and (seen.ceiling is not None or seen.train_loader is None)
    if seen.ended != "finished" or is_complete or seen.steps < WORTH_ANOTHER:
        return None
    everything = sum(stage.seconds for stage in OBSERVE)
    return min(pace / 2, PART_OF_IT * seen.training_seconds / everything)


def checked(ended: Ended, has_shares: bool = False) -> Observation:
    """What was seen, if it is enough: steps that were timed, and for shares some whose lines were looked at."""
    seen = ended.seen
    if seen is None:
        raise ScriptFailed(_died(ended), 128 - ended.exit_code if ended.exit_code < 0 else ended.exit_code or 1)
    enough = _is_enough(seen, has_shares)
    if not enough and seen.ended == "failed":
        raise ScriptFailed(
            f"the script failed before it could be measured: {_with_last_line(ended, seen)}", ended.exit_code or 1
        )
    if not enough and seen.ended == "measured":
        raise ScriptFailed(f"{OWN_FAILURE}; {'; '.join(seen.notes)}", 1)
    if not enough:
        raise ScriptFailed(_too_short(seen), 2)
    return seen


def _is_enough(seen: Observation, has_shares: bool) -> bool:
    is_split = not has_shares or seen.sampled is not None or seen.profile is not None
    return seen.timed is not None and seen.timed.steps >= FEWEST and is_split


def diagnosis(seen: Observation, pace: float = 1.0) -> Diagnosis:
    """What the numbers mean."""
    split = shares(seen)
    assert split is not None and seen.timed is not None
    findings = examine(seen, split)
    # Beside others that come and go, steps of different moments cannot be compared: shares of one can.
    replayed = seen.ceiling is not None and seen.ceiling.steps >= FEWEST and not is_crowded_out(seen)
    without_data = seen.timed.step * (1.0 - split.data - split.copy)
    ceiling = seen.ceiling.step if seen.ceiling is not None and replayed else without_data
    said = notes(seen)
    if seen.ended == "failed":
        said.append(f"the script failed after it was timed ({seen.error}): not everything could be measured")
    return Diagnosis(seen, split, ceiling, not replayed, findings, verdict(seen, split, findings), said, pace)


def _with_last_line(ended: Ended, seen: Observation) -> str:
    """Its error. One that only ended with a code has said why before: argparse does."""
    last = ended.output.splitlines()[-1:]
    if "attempted relative import" in seen.error:
        return f"{seen.error}; it is part of a package: brim doctor -m PACKAGE.MODULE, as with python -m"
    if "'get_ipython' is not defined" in seen.error:
        return f"{seen.error}; a notebook has that, a script has not: remove the line (a magic command)"
    return f"{seen.error}; its last line: {last[0]}" if last and seen.error.startswith("it ended with") else seen.error


def _died(ended: Ended) -> str:
    last = f"its last line: {ended.output.splitlines()[-1]}" if ended.output else "it printed nothing"
    if ended.exit_code == OWN_FAULT:
        return f"{OWN_FAILURE}; {last}"
    if ended.exit_code < 0:
        where = ended.crash.partition("\nExtension modules:")[0].strip()
        stacks = f"; it was there:\n{where}" if where else ""
        by = f"the script was ended by signal {-ended.exit_code} before it could be measured"
        return f"{by}; {last}{stacks}"
    return f"the script ended its process with exit code {ended.exit_code} before it could be measured; {last}"


def _too_short(seen: Observation) -> str:
    if seen.steps == 0:
        if seen.host.processes:
            return (
                "the script made no optimizer step in its own process, and started others: the doctor watches one"
                " process, so let the script train in it (one rank, no launcher)"
            )
        return (
            "the script ended without a step of a torch optimizer: the doctor takes a script that trains, with a loop"
            " around optimizer.step(), or around backward() at least 100 times"
        )
    if seen.steps >= WORTH_ANOTHER:
        return f"the script ended after {seen.steps} optimizer steps, too soon to be measured: let it train longer"
    return f"the script made only {seen.steps} optimizer steps, too few to be measured: let it make 20 or more"
