"""Training what a user's own function describes: ``workload: train.py:build``."""

import inspect
import random
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import nn

from brim.arguments.nearest import nearest
from brim.config.data_settings import with_settings
from brim.config.own_model import OwnModelConfig
from brim.config.parameters import Parameters
from brim.data import Loader, as_feed, batch_length
from brim.engine import Trainer
from brim.engine.calling.memory_format import lay_out
from brim.engine.components.loss import loss_of
from brim.engine.components.settings import shorten
from brim.engine.step.resized import batches_like
from brim.errors import ConfigError, a_type
from brim.memory.planning.estimates import ModelWithLoss
from brim.user_line import users_errors
from brim.workloads.outcome import JobFacts, Outcome
from brim.workloads.sections import plan_arguments, show_config, trainer_arguments

DATA = {"train_data": "train_ds", "eval_data": "valid_ds", "test_data": "test_ds"}
CONTRACT = "a mapping such as {'model': ..., 'train_data': ..., 'loss_fn': ...}, or a tuple (model, train_data)"


class OwnWorkload:
    """A function of the user's with its parameters. To make one imports the user's code.

    Args:
        config: a configuration that the user named; one from elsewhere could run anything.
    """

    def __init__(self, config: OwnModelConfig) -> None:
        self.named, self.function = str(config.code), config.code.load()
        self.parameters = Parameters.read(self.named, self.function, config.params)
        self.config = config.model_copy(update={"params": self.parameters.written})

    def build(self, **further: Any) -> dict[str, Any]:
        """Call the function; what it returns as keyword arguments of the trainer, data in batches as configured.

        ``further`` are loader settings for the training data, where nothing else is said.
        """
        seed = trainer_arguments(self.config.trainer)["seed"]
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        with users_errors(self.named):
            returned = self.function(**self.parameters.values)
        given = checked_arguments(returned, self.named)
        self._refuse_twice(given)
        for name, place in DATA.items():
            section = getattr(self.config, place)
            given[name] = with_settings(given.get(name), section, place, **(further if name == "train_data" else {}))
        return given

    def _refuse_twice(self, given: Mapping[str, Any]) -> None:
        section: BaseModel = self.config.trainer
        twice = next((name for name in given if name in section.model_fields_set), None)
        if twice is not None:
            raise ConfigError(
                f"trainer.{twice} is set, and {self.named} returns {twice!r} as well; leave one of them out"
            )

    def build_trainer(self, whole_batches: bool = False, **changes: Any) -> Trainer:
        """The trainer, but for ``changes`` of its arguments; ``whole_batches`` leaves out a shorter last one."""
        given = self.build()
        if whole_batches and self.config.train_ds.drop_last is None:
            given = self._with_whole_batches(given)
        trainer = Trainer(**{**trainer_arguments(self.config.trainer), **given, **changes})
        trainer.config = show_config(self.config, without=set(given))  # but what the function decides
        return trainer

    def _with_whole_batches(self, given: dict[str, Any]) -> dict[str, Any]:
        feed = as_feed(given["train_data"])
        if not isinstance(feed, Loader) or feed.samples is None or feed.samples < feed.batch_size:
            return given
        feed.drop_last = True
        return {**given, "train_data": feed}

    def run(self, resume: str | Path | None = None) -> Outcome:
        """Train and test."""
        trainer = self.build_trainer()
        result = trainer.fit(resume=resume)
        trainer.ranks.barrier()  # nobody ends while another is at work: a launcher would take that for a failure
        return Outcome.of(trainer, result)

    @cached_property
    def _built(self) -> dict[str, Any]:
        return self.build()

    def read(self) -> JobFacts:
        """Call the function once, and tell what it decides."""
        decided = frozenset(name for name, value in self._built.items() if value is not None)
        return JobFacts(self._batch_size(), decided)

    def _batch_size(self) -> int:
        """Samples of a batch: those of the loader, or of the first batch."""
        feed = as_feed(self._built["train_data"])
        return feed.batch_size if isinstance(feed, Loader) else batch_length(self._first_batch)

    @cached_property
    def _first_batch(self) -> Any:
        feed = as_feed(self._built["train_data"])
        first = next(iter(feed.batches(0, 0)), None)
        if first is None:
            raise ConfigError(f"{self.named}: train_data gave no batch")
        return first

    def plan_job(self) -> dict[str, Any]:
        """The arguments of `brim.plan` for this training."""
        built = self._built
        settings = {**trainer_arguments(self.config.trainer), **built}
        loss_fn = settings.get("loss_fn")
        lay_out(built["model"], settings["memory_format"])
        return {
            "model": ModelWithLoss(built["model"], lambda copied, samples: loss_of(copied, loss_fn)(samples)),
            "batch": batches_like(self._first_batch),
            "batch_size": self._batch_size(),
            **plan_arguments(settings),
        }

    def cache_choice(self) -> tuple[bool | None, str]:
        """brim knows of no cache in the user's model."""
        return None, ""


def checked_arguments(returned: Any, named: str) -> dict[str, Any]:
    """What a user's function returned, as arguments of the trainer.

    >>> sorted(checked_arguments((nn.Linear(1, 1), [1]), "train.py:build"))
    ['model', 'train_data']
    """
    if isinstance(returned, tuple) and len(returned) == 2:
        returned = {"model": returned[0], "train_data": returned[1]}
    if not isinstance(returned, Mapping):
        raise ConfigError(f"{named} returned {_shown(returned)}; it must return {CONTRACT}")
    known = inspect.signature(Trainer).parameters
    odd = next((name for name in returned if name not in known), None)
    if odd is not None:
        near = nearest(str(odd), known, 0.0)
        raise ConfigError(f"{named} returned {shorten(odd)}, no argument of brim.Trainer; did you mean {near!r}?")
    for name in ("model", "train_data"):
        if returned.get(name) is None:
            raise ConfigError(f"{named} returned no {name!r}; it must return {CONTRACT}")
    if not isinstance(returned["model"], nn.Module):
        raise ConfigError(f"{named} returned {_shown(returned['model'])} as the model; it must be a torch.nn.Module")
    return dict(returned)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "nothing" if value is None else f"{a_type(value)} ({shorten(value, 40)})"
