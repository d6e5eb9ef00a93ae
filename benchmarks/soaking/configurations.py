"""Random settings, models and data: interrupted as good as straight, sliced as good as whole."""

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import brim
from soaking.faults_of_memory import STEADY
from soaking.kills import EXIT_CODES
from soaking.mischief import ActOnTrainer, Mischief, die, send
from soaking.outcome import require, same_bits, same_up_to_rounding
from soaking.recipe import Recipe, random_recipe
from soaking.trial import Trial


def _stop(trainer: brim.Trainer) -> None:
    trainer.stop("as asked by the trial")


def interrupted(trial: Trial) -> None:
    """Stopped or killed after some steps, once or more often, and resumed: the same bits."""
    recipe = random_recipe(trial.random)
    if trial.random.random() < 0.2 and recipe.feed != "own sampler":  # which may draw the bad one too often in a row
        on_nan = trial.random.choice(["skip", "rewind"])
        recipe = replace(recipe, bad_sample=0, settings={**recipe.settings, "on_nan": on_nan, "max_steps": 8})
    counts = trial.measure(recipe)
    for _ in range(trial.random.randint(1, 3)):
        act, code = _way_to_stop(trial, recipe)
        at = trial.random.randint(1, max(1, counts.steps))
        child = trial.start(recipe, trial.tried, Mischief(at_step={at: act}))
        ended = child.wait()
        # A resumed run has fewer steps, and may end before the one at which it would be stopped.
        require(ended in (0, code), f"ended with {ended} where {code} was expected\n{child.words()}")
    trial.finish(recipe, trial.tried)
    same_bits(trial.straight, trial.tried)


def _way_to_stop(trial: Trial, recipe: Recipe) -> tuple[ActOnTrainer, int]:
    ways: list[tuple[ActOnTrainer, int]] = [(die, -signal.SIGKILL)]
    ways += [(send(number, to_all=False), code) for number, code in EXIT_CODES.items()]
    if not recipe.evaluates:  # a run that is over evaluates, which a run that goes on would not have done there
        ways.append((_stop, 0))
    return trial.random.choice(ways)


def sliced(trial: Trial) -> None:
    """Other slices, another optimizer's view of rounding only."""
    chosen: dict[str, Any] = {"dropout": 0.0, "precision": "32", "micro_batch": "auto"}
    chosen |= {"optimizer": trial.random.choice(STEADY), "batch_size": trial.random.choice([4, 7, 16, 30])}
    recipe = random_recipe(trial.random, **chosen)
    if recipe.model == "batch norm":
        recipe = replace(recipe, model="layer norm")
    trial.measure(recipe)
    size = trial.random.randrange(1, recipe.batch_size)
    recipe = replace(recipe, settings={**recipe.settings, "micro_batch": size})
    trial.train(recipe, trial.tried)
    same_up_to_rounding(trial.straight, trial.tried)


WAYS: dict[str, Callable[[Trial], None]] = {"interrupted": interrupted, "sliced": sliced}


def configuration(trial: Trial) -> None:
    trial.kind = trial.random.choices(list(WAYS), [3, 1])[0]
    WAYS[trial.kind](trial)
