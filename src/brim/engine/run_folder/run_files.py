"""What a trainer leaves in its run folder: what the run is, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from brim.engine.components.settings import TrainerSettings
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.monitor import Monitor
from brim.engine.run_folder.live_page import LivePage
from brim.engine.run_folder.result import Result
from brim.errors import ConfigError, Preempted, RunFolderError, reason
from brim.hardware import inventory
from brim.record import Journal, RunFolder, RunLock, RunPage, write_report
from brim.record.run_config import run_config
from brim.record.run_folder import ABOUT, CONFIG, MACHINE, METRICS, MODEL, PLAN, RESULT

if TYPE_CHECKING:
    from brim.memory import Plan

# For a first rank of before that was cut off from the others and has not noticed: it gives up after 100 s or more.
PATIENCE_S = 300.0
LONGEST_NAME = 48  # letters of the model's class in the name of a folder: file systems take 255 bytes


def open_folder(resume: str | Path | None, run_dir: str | Path | None, name: str) -> RunFolder:
    """A new folder, or the one that is continued."""
    name = re.sub(r"[^\w.-]+", "-", name)[:LONGEST_NAME]
    if resume is None:
        return RunFolder.create(run_dir, name=name)
    if str(resume) != "auto":
        return RunFolder.open(resume)
    if run_dir is None:
        raise ConfigError("resume='auto' continues the run at run_dir=, and none is given; name the run folder")
    if (Path(run_dir) / METRICS).exists():  # what is made last: a folder without it was left half made
        return RunFolder.open(run_dir)
    return RunFolder.create(run_dir)


def shared_folder(
    ranks: Ranks, resume: str | Path | None, run_dir: str | Path | None, name: str, journal: Journal
) -> tuple[RunFolder, RunLock | None]:
    """The folder of the run, which the first rank opens and owns for all; where it cannot, no rank goes on."""
    opened: RunFolder | RunFolderError | ConfigError | None = None
    lock: RunLock | None = None
    if ranks.is_first:
        try:
            opened = open_folder(resume, run_dir, name)
            lock = RunLock.take(opened.location, journal.say, PATIENCE_S if ranks.identity.is_launched else 0.0)
        except (RunFolderError, ConfigError) as error:
            opened = error
    opened = ranks.broadcast_object(opened)
    if not isinstance(opened, RunFolder):
        assert opened is not None
        raise opened
    if run_dir is not None and Path(run_dir).absolute() != opened.path.absolute():
        unused = f"run_dir={str(run_dir)!r} is not used"
        journal.warn_for_all(f"the run goes on in {opened.path}, which resume= names; {unused}")
    return opened, lock


def own_folder(ranks: Ranks, folder: RunFolder, journal: Journal) -> RunFolder:
    """Where this rank writes what it says; where one cannot, no rank goes on."""
    trouble, own = None, folder
    try:
        own = rank_folder(folder, ranks.rank)
        journal.attach(own)
    except RunFolderError as error:
        trouble = error
    wrong = next((error for error in ranks.all_gather_object(trouble) if error is not None), None)
    if wrong is not None:
        raise wrong
    return own


def rank_folder(folder: RunFolder, rank: int) -> RunFolder:
    """Where a rank writes what it says: the first one into the run folder itself, the others below it."""
    if rank == 0:
        return folder
    own = RunFolder(folder.path / "ranks" / f"rank-{rank}")
    if not folder.path.exists():
        raise RunFolderError(f"rank {rank} does not see the run folder {folder.path}; put it where all ranks can")
    try:
        own.checkpoints.mkdir(parents=True, exist_ok=True)
        (own.path / METRICS).touch()
    except OSError as error:
        raise RunFolderError(f"rank {rank} cannot write to {own.path}: {error.strerror}") from error
    return own


def describe_run(
    folder: RunFolder,
    config: str | None,
    settings: TrainerSettings,
    model: nn.Module,
    optimizer: Optimizer,
    **facts: Any,
) -> None:
    """Leave what is needed to understand the run, and to load its model where that is possible."""
    folder.write(CONFIG, run_config(config, vars(settings), optimizer))
    folder.remove(RESULT)  # of the run that this one continues
    folder.write_json(MACHINE, {**inventory().facts(), **facts})
    arguments = getattr(model, "arguments", None)
    if isinstance(arguments, dict):
        folder.write_json(MODEL, {"model": type(model).__name__, "arguments": arguments})


def write_outcome(
    folder: RunFolder, journal: Journal, outcome: dict[str, Any], plan: Plan | None, monitor: Monitor | None,
    metrics_of: str, choices: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Leave what came of the run.

    ``metrics_of``: which data its metrics are of, ``"test"`` or ``"validation"``. ``choices``: what was decided by
    measuring, with its reasons.
    """
    judged = {} if monitor is None else {"monitor": monitor.name, "higher_is_better": monitor.higher_is_better}
    judged["metrics_of"] = metrics_of
    try:
        made = {} if plan is None else plan.as_json()
        if made or "compile" in (choices or {}):  # which is decided without a GPU too
            folder.write_json(PLAN, {**made, "choices": choices or {}})
        folder.write_json(RESULT, {**outcome, **judged})
    except RunFolderError as error:  # the model is trained, and the caller has the result
        journal.warn(f"{error}; the run is over, and its result is not in its folder")


def begin_page(folder: RunFolder, about: dict[str, str | int], flush: Callable[[], None]) -> LivePage:
    """Leave what the run is about, and a page that shows it: one that is killed early has a page as well.

    ``flush`` puts the numbers so far on disk. Should writing the page fail, the end of the run says so.
    """
    folder.write_json(ABOUT, about)
    page = RunPage(folder)

    def write() -> None:
        flush()
        with suppress(Exception):
            page.write()

    write()
    return LivePage(write)


def note_end(folder: RunFolder, journal: Journal, error: BaseException, by: str) -> None:
    """Leave how a run ended that did not end by itself: asked to stop ``by`` a signal, or with an error."""
    if isinstance(error, Preempted | KeyboardInterrupt):
        journal.note(str(error) or "stopped at once, without another checkpoint", "interrupted", by=by or "Ctrl-C")
        if str(error) and isinstance(error, KeyboardInterrupt):
            goes_on = f"fit(resume={str(folder.path)!r}) goes on"
            journal.hint(f"{error}. The model has the weights of that step and can be used; {goes_on}")
    elif isinstance(error, Exception):
        journal.note(f"ended with an error: {reason(error)}", "failed")


def show_run(folder: RunFolder, journal: Journal, result: Result | None = None) -> None:
    """Say where what came of a run is, and write its page, which shows that too.

    The page is a view of what is on disk already, so a failing one ends no run.
    """
    if result is not None:
        journal.say(result.sentence, "end")  # which the page has as well
    try:
        where = f"report: {write_report(folder)}"
    except Exception as error:
        where = f"run folder: {folder.path}"
        journal.warn(f"the page of this run could not be written: {reason(error)}")
    if result is not None:
        journal.say(where, "report")
