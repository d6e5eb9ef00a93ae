"""From findings to diffs of the user's files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from brim.doctor.edits.evaluation import with_one_copy
from brim.doctor.edits.loaders import with_brims_loader, with_settings
from brim.doctor.edits.loops import every_so_often, without_reading
from brim.doctor.edits.own_step import with_own_step
from brim.doctor.edits.source import CannotEdit, Edit, Source, diff_of, edited, read_source
from brim.doctor.edits.steps import (
    with_copies_that_do_not_wait,
    with_dropped_gradients,
    with_fused,
    with_tf32,
    with_threads,
    without_anomaly_detection,
)
from brim.doctor.observation import Observation
from brim.doctor.order import Cures
from brim.doctor.rules.finding import WORTH_TELLING, Finding

FUSIBLE = {"Adam", "AdamW", "SGD", "Adagrad"}
COPIED_ONCE = "what an evaluation returns stays on the device until its end"
OTHER_ORDER = "brim.Loader draws another order of the same samples, from its seed= and the epoch"


@dataclass(frozen=True)
class Suggestion:
    """A change of one file of the user's that cures a finding.

    Attributes:
        cause: The finding's.
        path: The file, absolute.
        diff: What is to be changed.
        text: The whole file with the change made.
        note: What the change does beside its gain; empty where it does nothing else.
        changes_training: Whether the losses are others with it.
    """

    cause: str
    path: str
    diff: str
    text: str
    note: str = ""
    changes_training: bool = False


@dataclass(frozen=True)
class _Change:
    """Edits of the file in which a line lies, or of whichever file they fit; a line of None stands for all files."""

    line: str | None
    edits: Callable[[Source, int], list[Edit]]
    note: str = ""


def suggestions(seen: Observation, findings: Sequence[Finding], folder: Path) -> list[Suggestion]:
    """A diff for every finding that one is known for.

    Args:
        seen: What was seen of the script.
        findings: What is wrong with it.
        folder: What names in the diffs are relative to.
    """
    sources = [source for file in seen.files if (source := read_source(Path(file))) is not None]
    return [found for finding in findings for found in _for_finding(seen, finding, sources, folder)]


def _for_finding(seen: Observation, finding: Finding, sources: list[Source], folder: Path) -> list[Suggestion]:
    """All changes of a finding that can be made, as one diff for each file."""
    by_file: dict[Path, tuple[Source, list[Edit], str]] = {}
    for change in _changes(seen, finding):
        for source in _files_of(change, sources):
            number = int(change.line.rpartition(":")[2]) if change.line else 0
            try:
                edits = change.edits(source, number)
                before = by_file.get(source.path, (source, [], ""))[1]
                edited(source, [*before, *edits])
            except CannotEdit:
                continue
            by_file[source.path] = (source, [*before, *edits], change.note)
    return [_suggestion(finding.cause, *made, folder) for made in by_file.values()]


def _suggestion(cause: str, source: Source, edits: list[Edit], note: str, folder: Path) -> Suggestion:
    text = edited(source, edits)
    inside = source.path.is_relative_to(folder)
    name = str(source.path.relative_to(folder)) if inside else source.path.name
    return Suggestion(cause, str(source.path), diff_of(name, source.text, text), text, note, note == OTHER_ORDER)


def _files_of(change: _Change, sources: list[Source]) -> list[Source]:
    """Lines are known by the names of their files: where two files have the same name, neither is changed."""
    if change.line is None:
        return sources
    named = [source for source in sources if source.path.name == change.line.rpartition(":")[0]]
    return named if len(named) == 1 else []


def _changes(seen: Observation, finding: Finding) -> list[_Change]:
    """What to change for a cause, in the order in which it is tried."""
    cures, loader = finding.cures, seen.train_loader
    line = loader.line if loader is not None else finding.line
    if finding.cause == "per-sample-access":
        columns = loader is not None and loader.columns
        return [_Change(line, lambda source, at: with_brims_loader(source, at), OTHER_ORDER)] if columns else []
    if finding.cause == "optimizer-not-fused":
        names = {optimizer.name for optimizer in seen.optimizers} & FUSIBLE
        return [_Change(None, lambda source, _: with_fused(source, names))]
    if finding.cause == "zero-grad-fills":
        return [_Change(None, lambda source, _: with_dropped_gradients(source))]
    if finding.cause == "anomaly-detection":
        return [_Change(None, lambda source, _: without_anomaly_detection(source))]
    if finding.cause in ("copy-not-pinned", "copy-not-overlapped"):
        return [*_pinned(seen), *_copies(seen)]
    if finding.cause in ("logging-every-step", "sync-in-the-loop"):
        return [_Change(at, edit) for at in _lines(seen, finding) for edit in (every_so_often, without_reading)]
    if finding.cause == "garbage-collection":
        collected = [line.line for line in seen.lines if "gc.collect(" in line.text]
        return [_Change(at, every_so_often) for at in collected[:1]]
    if finding.cause == "evaluation":
        return [_Change(at, with_one_copy, COPIED_ONCE) for at in _lines(seen, finding)]
    if finding.cause == "too-little-compute" and seen.host.device == "cuda":
        return [_Change(at, with_own_step) for at in _step_lines(seen)]
    if finding.cause == "fp32-without-tf32":
        return [_Change(_step_lines(seen)[0], lambda source, _: with_tf32(source))] if _step_lines(seen) else []
    if cures.threads is not None:
        return [_Change(at, lambda source, _: with_threads(source, cures.threads or 1)) for at in _step_lines(seen)[:1]]
    settings = (cures.num_workers, cures.persistent_workers, cures.prefetch_factor)
    return [_Change(line, lambda source, at: with_settings(source, at, cures))] if any_set(settings) and line else []


def any_set(values: Sequence[object]) -> bool:
    return any(value is not None for value in values)


def _pinned(seen: Observation) -> list[_Change]:
    loader = seen.train_loader
    if loader is None or loader.pin_memory or not loader.line:
        return []
    return [_Change(loader.line, lambda source, at: with_settings(source, at, Cures(), pin_memory=True))]


def _copies(seen: Observation) -> list[_Change]:
    calls = [call for call in seen.calls if call.direction == "to device" and not call.non_blocking and call.line]
    return [_Change(line, with_copies_that_do_not_wait) for line in dict.fromkeys(call.line for call in calls)]


def _lines(seen: Observation, finding: Finding) -> list[str]:
    """The lines that a finding is about, the worst first."""
    kinds = {"logging-every-step": "logging", "evaluation": "evaluation"}
    worth = [line.line for line in seen.lines if line.kind == kinds.get(finding.cause) and line.share >= WORTH_TELLING]
    if finding.cause == "sync-in-the-loop":
        worth += [call.line for call in seen.calls if call.direction == "to host" and call.per_step >= 0.5]
    return [line for line in dict.fromkeys([finding.line, *worth]) if line]


def _step_lines(seen: Observation) -> list[str]:
    """Lines of the step itself: the optimizer's, then those of the backward pass."""
    kinds = ("optimizer", "backward")
    return [line.line for kind in kinds for line in seen.lines if line.kind == kind and line.line][:2]
