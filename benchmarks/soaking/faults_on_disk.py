"""Disks that are full or read-only, and files that are not what was written."""

import ctypes
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

from brim.engine.checkpoints.checkpoint import BEST
from brim.errors import Preempted, RunFolderError
from soaking.child import speak_into
from soaking.mischief import Mischief, die, send
from soaking.outcome import newest_checkpoint, require, same_bits, same_state, whole_checkpoints
from soaking.recipe import Recipe, random_recipe
from soaking.training import RUN
from soaking.trial import Trial


def full_disk(trial: Trial, before: Callable[[], None] = lambda: None) -> None:
    """For some steps no file can grow beyond a few bytes: training goes on, and so does saving when there is room."""
    chosen = {"checkpoint_every": trial.random.choice([1, 2]), "max_steps": trial.random.randrange(4, 20)}
    # Not with loader processes: the limit would be that of the memory which they hand batches over in, as well.
    feed = trial.random.choice(["tensors", "plain data set", "data set", "ready batches", "stream"])
    recipe = random_recipe(trial.random, **chosen, feed=feed, workers=0, patience=None)
    counts = trial.measure(recipe)
    first = trial.random.randrange(1, counts.forwards)
    last = trial.random.randint(first + 1, counts.forwards)
    room = trial.random.choice([0, trial.random.randrange(200), trial.random.randrange(5000)])
    killed = trial.random.random() < 0.3
    moments = {first: lambda _: _limit_files(room), last: die if killed else lambda _: _limit_files(None)}
    full = Mischief(before=before, at_forward=moments)
    trial.train(recipe, trial.tried, full, code=-signal.SIGKILL if killed else 0)
    whole_checkpoints(trial.tried)
    trial.finish(recipe, trial.tried)
    # The best weights may have been those that there was no room for.
    (same_state if recipe.evaluates else same_bits)(trial.straight, trial.tried)


def full_disk_for_words(trial: Trial) -> None:
    """The same where what the program prints goes to a file on that disk, too."""
    full_disk(trial, before=lambda: _speak_into(trial.folder / "printed.txt"))


def _speak_into(file: Path) -> None:
    with file.open("a") as opened:
        speak_into(opened.fileno())


def _limit_files(size: int | None) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size is None else size, most))


def becomes_read_only(trial: Trial) -> None:
    """From some step on the run folder takes nothing more: the training ends all the same."""
    recipe = random_recipe(trial.random, checkpoint_every=1)
    counts = trial.measure(recipe)
    run = trial.tried / RUN
    at = trial.random.randint(1, counts.forwards)
    said = trial.train(recipe, trial.tried, Mischief(before=_give_up_rights, at_forward={at: lambda _: _lock(run)}))
    require("cannot write the checkpoint" in said, f"nothing was said about the checkpoints\n{said}")
    for folder in (run, run / "checkpoints"):
        folder.chmod(0o755)
    whole_checkpoints(trial.tried)
    trial.finish(recipe, trial.tried)
    same_bits(trial.straight, trial.tried)


def _give_up_rights() -> None:
    """Root may write where nobody may; without its capabilities it is an owner like any other."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the call, this process
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 of each
    require(ctypes.CDLL(None).capset(header, none) == 0, "capabilities cannot be given up here")


def _lock(run: Path) -> None:
    for folder in (run / "checkpoints", run):
        folder.chmod(0o555)


def read_only_from_the_start(trial: Trial) -> None:
    """Refused in one sentence, before anything is trained."""
    trial.tried.mkdir(parents=True, mode=0o555)
    recipe = random_recipe(trial.random)
    said = trial.train(recipe, trial.tried, Mischief(before=_give_up_rights), code=RunFolderError.exit_code)
    require("cannot write the run folder" in said, f"the sentence is another\n{said}")


def _interrupted(trial: Trial, **fixed: object) -> Recipe:
    """A training that was asked to stop when it had three checkpoints at least."""
    steps = trial.random.randrange(5, 20)
    chosen = {"checkpoint_every": 1, "keep": trial.random.choice([2, 3]), "max_steps": steps, "patience": None}
    recipe = random_recipe(trial.random, **chosen, **fixed)
    trial.measure(recipe)
    at = trial.random.randrange(3, steps)
    trial.train(recipe, trial.tried, Mischief(at_step={at: send(signal.SIGTERM, False)}), code=Preempted.exit_code)
    return recipe


def _damaged_checkpoint(damage: Callable[[Path, Random], bool]) -> Callable[[Trial], None]:
    """``damage`` does something to a file of the newest checkpoint, and says whether that can be noticed."""

    def fault(trial: Trial) -> None:
        recipe = _interrupted(trial)
        files = sorted(newest_checkpoint(trial.tried).iterdir())
        file = trial.random.choice(files)
        noticeable = damage(file, trial.random)
        said = trial.finish(recipe, trial.tried)
        require("is damaged" in said or not noticeable, f"nothing was said of the damage to {file.name}\n{said}")
        same_bits(trial.straight, trial.tried)

    return fault


def _cut(file: Path, random: Random) -> bool:
    file.write_bytes(file.read_bytes()[: random.randrange(file.stat().st_size)])
    return True


def _flip(file: Path, random: Random) -> bool:
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)
    return True


def _remove(file: Path, random: Random) -> bool:
    file.unlink()
    return file.name != "checksums.json"  # without it nobody can tell, and the checkpoint is good


def all_damaged(trial: Trial) -> None:
    recipe = _interrupted(trial)
    for checkpoint in newest_checkpoint(trial.tried).parent.glob("step-*"):
        _flip(checkpoint / "model.safetensors", trial.random)
    said = trial.train(recipe, trial.tried, code=RunFolderError.exit_code)
    require("all checkpoints" in said, f"the sentence is another\n{said}")


def damaged_best(trial: Trial) -> None:
    """The same model as without the damage, or a line that says why it is another."""
    recipe = _interrupted(trial, evaluates=True, eval_every="1 step")
    file = trial.tried / RUN / "checkpoints" / BEST / "model.safetensors"
    _flip(file, trial.random)
    said = trial.finish(recipe, trial.tried)
    if "best" not in "".join(line for line in said.splitlines() if line.startswith("warning")):
        same_bits(trial.straight, trial.tried)
    same_state(trial.straight, trial.tried)


def half_lines(trial: Trial) -> None:
    """What a kill leaves of the line that was being written."""
    recipe = _interrupted(trial)
    for name in ("metrics.jsonl", "events.jsonl", "log.txt"):
        file = trial.tried / RUN / name
        content = file.read_bytes()
        file.write_bytes(content[: trial.random.randrange(len(content) + 1)])
    trial.finish(recipe, trial.tried)
    require((trial.tried / RUN / "report.html").exists(), "the run has no page")
    same_bits(trial.straight, trial.tried)


def left_overs(trial: Trial) -> None:
    """Of a process that was killed while it wrote, under the names that the next one wants to use."""
    recipe = _interrupted(trial, evaluates=True)
    checkpoints = trial.tried / RUN / "checkpoints"
    newest = newest_checkpoint(trial.tried)
    number = int(newest.name.removeprefix("step-")) + 1
    for name in (f".step-{number:09d}.tmp", f".step-{number:09d}.old", ".best.tmp", ".best.old"):
        shutil.copytree(newest, checkpoints / name)
        _cut(checkpoints / name / "model.safetensors", trial.random)
    trial.finish(recipe, trial.tried)
    same_bits(trial.straight, trial.tried)


FAULTS: dict[str, Callable[[Trial], None]] = {
    "disk full while saving": full_disk,
    "disk full while saving and printing": full_disk_for_words,
    "run folder becomes read-only": becomes_read_only,
    "run folder is read-only": read_only_from_the_start,
    "newest checkpoint half written": _damaged_checkpoint(_cut),
    "flipped bit in the newest checkpoint": _damaged_checkpoint(_flip),
    "file of the newest checkpoint missing": _damaged_checkpoint(_remove),
    "all checkpoints damaged": all_damaged,
    "best weights damaged": damaged_best,
    "half lines in the records": half_lines,
    "left-overs of a killed save": left_overs,
}
