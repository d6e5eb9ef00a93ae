"""Kills and signals at random moments. Each run is resumed until it is done, and ends with the same bits."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brim.errors import INTERRUPTED, Preempted
from soaking.mischief import Mischief, die, send
from soaking.outcome import require, same_bits, whole_checkpoints
from soaking.recipe import Recipe, random_recipe
from soaking.training import Counts
from soaking.trial import Trial

EXIT_CODES = {
    signal.SIGTERM: Preempted.exit_code,
    signal.SIGUSR1: Preempted.exit_code,
    signal.SIGINT: INTERRUPTED,
}
FIRST_FILES = 10  # file operations in which the run folder is made: few of all, and each is another case
IMPORTS = 2.5  # seconds that a fresh interpreter may take for them


@dataclass(frozen=True)
class Setting:
    """A training to interrupt: how long it takes and how many moments it has when nothing happens."""

    trial: Trial
    recipe: Recipe
    counts: Counts
    seconds: float


def killed_by_the_clock(setting: Setting) -> int:
    return _after_a_while(setting, signal.SIGKILL)


def killed_from_the_start(setting: Setting) -> int:
    """In an interpreter of its own, imports included."""
    return _after_a_while(setting, signal.SIGKILL, fresh=True)


def killed_at_a_file(setting: Setting) -> int:
    """Just before the run folder changes: a file is opened or removed, a folder made or renamed."""
    last = setting.trial.random.choice([setting.counts.files, min(setting.counts.files, FIRST_FILES)])
    number = setting.trial.random.randint(1, last)
    return _with(setting, Mischief(at_file={number: die}))


def killed_in_a_step(setting: Setting) -> int:
    number = setting.trial.random.randint(1, setting.counts.forwards)
    return _with(setting, Mischief(at_forward={number: die}))


def asked_by_the_clock(setting: Setting) -> int:
    """Before and after the training itself a signal does what it does to any program."""
    number = setting.trial.random.choice(list(EXIT_CODES))
    to_all = setting.trial.random.random() < 0.3
    code = _after_a_while(setting, number, to_all=to_all)
    usual = (0, -number, 1) if number == signal.SIGINT else (0, -number)
    require(code in (EXIT_CODES[number], *usual), f"ended with {code} after {number.name}\n{_words(setting)}")
    return code


def asked_in_a_step(setting: Setting) -> int:
    number = setting.trial.random.choice(list(EXIT_CODES))
    at = setting.trial.random.randint(1, setting.counts.forwards)
    before = len(setting.trial.children)
    to_all = setting.trial.random.random() < 0.3
    code = _with(setting, Mischief(at_forward={at: send(number, to_all)}))
    # A resumed run has fewer steps, and may end before the one with the signal.
    expected = (EXIT_CODES[number],) if before == 1 else (EXIT_CODES[number], 0)
    require(code in expected, f"ended with {code} after {number.name} in forward pass {at}\n{_words(setting)}")
    return code


WAYS: dict[str, tuple[Callable[[Setting], int], int]] = {
    "kill -9 by the clock": (killed_by_the_clock, 6),
    "kill -9 from the start of the interpreter": (killed_from_the_start, 1),
    "kill -9 at a file operation": (killed_at_a_file, 6),
    "kill -9 in a step": (killed_in_a_step, 2),
    "signal by the clock": (asked_by_the_clock, 3),
    "signal in a step": (asked_in_a_step, 3),
}


def kill(trial: Trial) -> None:
    """One training, interrupted in one way up to three times."""
    names = list(WAYS)
    trial.kind = trial.random.choices(names, [WAYS[name][1] for name in names])[0]
    recipe = random_recipe(trial.random)
    began = time.monotonic()
    counts = trial.measure(recipe)
    setting = Setting(trial, recipe, counts, time.monotonic() - began)
    for _ in range(trial.random.randint(1, 3)):
        code = WAYS[trial.kind][0](setting)
        whole_checkpoints(trial.tried)
        if code == 0:
            break
    trial.finish(recipe, trial.tried)
    same_bits(trial.straight, trial.tried)


def _after_a_while(setting: Setting, number: signal.Signals, to_all: bool = False, fresh: bool = False) -> int:
    child = setting.trial.start(setting.recipe, setting.trial.tried, fresh=fresh)
    time.sleep(setting.trial.random.random() * (setting.seconds + IMPORTS * fresh))
    child.signal(number, to_all)
    return child.wait()


def _with(setting: Setting, mischief: Mischief) -> int:
    return setting.trial.start(setting.recipe, setting.trial.tried, mischief).wait()


def _words(setting: Setting) -> Any:
    return setting.trial.children[-1].words()
