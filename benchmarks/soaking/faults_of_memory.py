"""Memory that runs out: in the forward pass, the backward pass and the optimizer, once, a few times or for good."""

from collections.abc import Callable
from dataclasses import replace

from brim.errors import CannotFit
from soaking.mischief import Mischief, no_memory, no_memory_for_gradients
from soaking.outcome import require, same_bits, same_up_to_rounding
from soaking.recipe import Recipe, random_recipe
from soaking.training import counts_of
from soaking.trial import Trial

STEADY = ("AdamW", "momentum", "plain", "two groups")
"""Optimizers that do not divide by what may be rounding alone, so that rounding stays rounding."""


def _recipe(trial: Trial) -> Recipe:
    """A training that can be sliced some times."""
    chosen = {"batch_size": trial.random.choice([8, 12, 16]), "optimizer": trial.random.choice(STEADY)}
    return random_recipe(trial.random, **chosen, precision="32", micro_batch="auto", patience=None)


def runs_out_in_steps(trial: Trial) -> None:
    """The batch is sliced and nothing else changes; where slices draw other dropout, the number of steps stays."""
    recipe = _recipe(trial)
    counts = trial.measure(recipe)
    moments = trial.random.sample(range(1, counts.forwards + 1), min(counts.forwards, trial.random.randint(1, 2)))
    ways = {moment: trial.random.choice([no_memory, no_memory_for_gradients]) for moment in moments}
    said = trial.train(recipe, trial.tried, Mischief(at_forward=ways))
    require("out of memory in the" in said, f"nothing was said of it\n{said}")
    require(counts_of(trial.tried).steps == counts.steps, "the number of optimizer steps is another")
    if recipe.can_be_sliced:
        same_up_to_rounding(trial.straight, trial.tried)


def runs_out_in_the_optimizer(trial: Trial) -> None:
    """Its weights cannot be trusted, so the run ends; it goes on from the checkpoint before."""
    recipe = _recipe(trial)
    counts = trial.measure(recipe)
    at = trial.random.randint(1, counts.steps)
    trial.train(recipe, trial.tried, Mischief(at_step={at: no_memory}), code=CannotFit.exit_code)
    trial.finish(recipe, trial.tried)
    same_bits(trial.straight, trial.tried)


def runs_out_for_good(trial: Trial) -> None:
    """The run ends when nothing is left to try, with a checkpoint, and can go on where there is more memory."""
    recipe = replace(_recipe(trial), evaluates=False, scheduler="cosine")
    counts = trial.measure(recipe)
    first = trial.random.randint(1, counts.forwards)
    from_then_on = dict.fromkeys(range(first, first + 10_000), no_memory)
    trial.train(recipe, trial.tried, Mischief(at_forward=from_then_on), code=CannotFit.exit_code)
    trial.finish(recipe, trial.tried)
    if recipe.can_be_sliced:
        same_up_to_rounding(trial.straight, trial.tried)


FAULTS: dict[str, Callable[[Trial], None]] = {
    "out of memory in some steps": runs_out_in_steps,
    "out of memory in the optimizer": runs_out_in_the_optimizer,
    "out of memory for good": runs_out_for_good,
}
