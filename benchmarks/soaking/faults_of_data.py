"""Samples that cannot be read, targets that are NaN, and loader processes that die."""

import math
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import get_worker_info

from brim.engine.step.eager_step import EagerStep
from brim.engine.step.step_result import StepResult
from brim.errors import BadNumbers, DataError
from soaking.mischief import Mischief
from soaking.outcome import require, same_bits
from soaking.recipe import Recipe, random_recipe
from soaking.training import RUN
from soaking.trial import Trial

LARGE = 1e6  # a target that no loss hides


def unreadable_sample(trial: Trial) -> None:
    """The run ends with its number; when it can be read, the run goes on as if nothing had been."""
    feed = trial.random.choice(["data set", "workers", "torch's loader", "stream"])
    recipe = random_recipe(trial.random, feed=feed)
    trial.measure(recipe)
    bad, good_times = trial.random.randrange(recipe.samples), trial.random.randrange(3)
    child = trial.start(recipe, trial.tried, Mischief(on_sample=_failing(bad, good_times)))
    code, said = child.wait(), child.words()
    # It may be among those that drop_last leaves out, or not be asked for often enough.
    require(code in (0, DataError.exit_code), f"ended with {code}\n{said}")
    require(code == 0 or "cannot be read" in said, f"the sentence is another\n{said}")
    trial.finish(recipe, trial.tried)
    same_bits(trial.straight, trial.tried)


def _failing(bad: int, good_times: int) -> Callable[[int], None]:
    asked = 0

    def on_sample(index: int) -> None:
        nonlocal asked
        asked += index == bad
        if index == bad and asked > good_times:
            raise OSError("the disk that it is on is gone")

    return on_sample


def _with_workers(trial: Trial) -> Recipe:
    feed = trial.random.choice(["workers", "torch's loader"])
    return random_recipe(trial.random, feed=feed, workers=trial.random.choice([1, 2]))


def worker_is_killed(trial: Trial) -> None:
    """From outside, at some step, as the system does when memory is short; more than once."""
    recipe = _with_workers(trial)
    counts = trial.measure(recipe)
    moments = trial.random.sample(range(1, counts.forwards + 1), min(counts.forwards, trial.random.randint(1, 3)))
    trial.train(recipe, trial.tried, Mischief(at_forward=dict.fromkeys(moments, _kill_a_worker)))
    same_bits(trial.straight, trial.tried)


def _kill_a_worker(_: Tensor) -> None:
    for worker in multiprocessing.active_children()[:1]:
        worker.kill()


def worker_dies(trial: Trial) -> None:
    """By itself, while it reads a certain sample: twice is survived, for ever is not."""
    recipe = replace(_with_workers(trial), drop_last=False)
    trial.measure(recipe)
    bad, most = trial.random.randrange(recipe.samples), trial.random.choice([1, 2, 1000])
    dying = Mischief(on_sample=_deadly(bad, most, trial.folder / "deaths"))
    said = trial.train(recipe, trial.tried, dying, code=0 if most <= 2 else DataError.exit_code)
    require(most > 2 or "a loader process died" in said, f"nothing was said of the death\n{said}")
    require(most <= 2 or "loader processes were ended" in said, f"the sentence is another\n{said}")
    trial.finish(recipe, trial.tried)
    same_bits(trial.straight, trial.tried)


def _deadly(bad: int, most: int, deaths: Path) -> Callable[[int], None]:
    def on_sample(index: int) -> None:
        if index != bad or get_worker_info() is None:
            return
        with deaths.open("a") as file:
            file.write(".")
            file.flush()
            if file.tell() <= most:
                os.kill(os.getpid(), signal.SIGKILL)

    return on_sample


def _with_bad_sample(trial: Trial, on_nan: str) -> Recipe:
    """Some steps between two with the bad sample, which comes once an epoch."""
    feeds = ["tensors", "plain data set", "data set", "workers", "torch's loader", "ready batches"]
    chosen: dict[str, Any] = {"feed": trial.random.choice(feeds), "batch_size": trial.random.choice([4, 5, 8])}
    chosen |= {"drop_last": False, "gradient_accumulation_steps": trial.random.choice([1, 2]), "on_nan": on_nan}
    recipe = random_recipe(trial.random, **chosen)
    return replace(recipe, bad_sample=trial.random.randrange(recipe.samples))


def nan_stops(trial: Trial) -> None:
    """The run ends and keeps the batch; with better data it goes on as if nothing had been."""
    recipe = _with_bad_sample(trial, "stop")
    trial.measure(replace(recipe, bad_sample=None))
    child = trial.start(recipe, trial.tried)
    code = child.wait()
    # The last steps of max_steps may not come to it.
    require(code in (0, BadNumbers.exit_code), f"ended with {code}\n{child.words()}")
    if code:
        require("the loss is nan at step" in child.words(), f"the sentence is another\n{child.words()}")
        require(any((trial.tried / RUN / "bad-batches").iterdir()), "the batch was not kept")
    trial.finish(replace(recipe, bad_sample=None), trial.tried)
    same_bits(trial.straight, trial.tried)


def _nan_left_out(on_nan: str) -> Callable[[Trial], None]:
    def fault(trial: Trial) -> None:
        recipe = _with_bad_sample(trial, on_nan)
        # The same from a training whose bad losses are large instead of NaN, and whose step is told to leave them out.
        plain = replace(recipe, bad_target=str(LARGE), settings={**recipe.settings, "on_nan": "stop"})
        trial.train(plain, trial.straight, Mischief(before=_leave_large_losses_out))
        trial.train(recipe, trial.tried)
        same_bits(trial.straight, trial.tried)

    return fault


def _leave_large_losses_out() -> None:
    apply = EagerStep.apply

    def apply_small(step: EagerStep, loss: Tensor) -> StepResult:
        return StepResult(loss) if loss.item() > math.sqrt(LARGE) else apply(step, loss)

    EagerStep.apply = apply_small  # type: ignore[method-assign, assignment]


FAULTS: dict[str, Callable[[Trial], None]] = {
    "unreadable sample": unreadable_sample,
    "loader process killed": worker_is_killed,
    "loader process dies at a sample": worker_dies,
    "NaN, on_nan='stop'": nan_stops,
    "NaN, on_nan='skip'": _nan_left_out("skip"),
    "NaN, on_nan='rewind'": _nan_left_out("rewind"),
}
