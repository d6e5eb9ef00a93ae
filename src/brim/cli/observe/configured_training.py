"""What is no script by itself, as one that the doctor can watch: the training of a configuration, or a module."""

from pathlib import Path
from typing import Any

import torch

from brim.doctor.watching.lines.source_lines import NOT_THE_USERS

SCRIPT = """\
from brim.cli.observe.configured_training import train_configured

train_configured({path!r}, {overrides!r})
"""
MODULE = """\
import os, runpy, sys

sys.path[0] = os.getcwd()
runpy.run_module({name!r}, run_name="__main__", alter_sys=True)
"""
MANY, VERY_MANY = 10_000, 10**9  # epochs; steps between checkpoints


def is_configuration(name: str) -> bool:
    """Whether ``brim doctor`` was given a configuration, or settings of one, not a script.

    >>> is_configuration("my.yaml"), is_configuration("workload=recommender"), is_configuration("train.py")
    (True, True, False)
    """
    return Path(name).suffix in (".yaml", ".yml") or ("=" in name and not Path(name).is_file())


def script_for(name: str, overrides: list[str], folder: Path) -> Path:
    """A script that trains it, written into a folder; what is wrong with the configuration is said at once."""
    from brim.config import load_config

    settings = [name, *overrides] if "=" in name and not Path(name).is_file() else overrides
    path = None if settings is not overrides else name
    load_config(path, settings)
    script = folder / NOT_THE_USERS
    script.write_text(SCRIPT.format(path=path, overrides=settings))
    return script


def script_for_module(name: str, folder: Path) -> Path:
    """A script that does what ``python -m NAME`` does in this folder."""
    script = folder / NOT_THE_USERS
    script.write_text(MODULE.format(name=name))
    return script


def train_configured(path: str | None, overrides: list[str]) -> None:
    """Train without an end, in a run folder of its own, without checkpoints: whoever watches ends it.

    Only what decides when the run ends, and what it leaves behind, is other than configured.
    """
    from brim.config import load_config
    from brim.config.workload import open_workload

    _mark_captured_steps()
    workload = open_workload(load_config(path, overrides))
    changed: dict[str, Any] = {"epochs": MANY, "max_steps": None, "patience": None, "checkpoint_every": VERY_MANY}
    workload.build_trainer(**changed).fit()


def _mark_captured_steps() -> None:
    """Steps that are replayed from a CUDA graph call no optimizer; one that does nothing makes a step after each."""
    from brim.engine.captured import CapturedStep

    step, marks = CapturedStep.__call__, [_Mark([torch.nn.Parameter(torch.zeros(1))])]

    def marked(self: Any, *arguments: Any, **options: Any) -> Any:
        result = step(self, *arguments, **options)
        marks[0].step()
        return result

    CapturedStep.__call__ = marked  # type: ignore[method-assign]


class _Mark(torch.optim.Optimizer):
    """Its steps change nothing."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__(parameters, {})
        if torch.cuda.is_available():
            parameters[0].data = parameters[0].data.cuda()  # where the doctor takes the training to be

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        return None
