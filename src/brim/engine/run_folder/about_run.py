"""What a run is about, for people who open its folder later: model, optimizer, data, code and command."""

import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sized
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

import brim
from brim.data import Feed, Loader
from brim.engine.evaluation.evaluation_sets import named_sets
from brim.sizes import known_length

GIT_SECONDS = 2.0  # on a slow file system a large repository takes longer than anybody wants to wait
SHOWN_SETTINGS = ("lr", "momentum", "betas", "weight_decay")


def about_run(
    model: nn.Module,
    optimizer: Optimizer,
    feed: Feed,
    accumulation: int,
    ranks: int,
    training_data: Any = None,
    steps: int | None = None,
    **judged_by: Any,
) -> dict[str, str | int]:
    """Facts by name; ``training_data`` and ``judged_by``: what was handed over for training and evaluation.

    ``steps``: how many the whole run has, where that is known.
    """
    sizes = {"training_data": "" if training_data is None else size_of(training_data)}
    sizes |= {name: size_of_sets(one) for name, one in judged_by.items() if one is not None}
    facts = {
        "model": type(model).__name__,
        "parameters": show_parameters(model.parameters()),
        "optimizer": show_optimizer(optimizer),
        "batch": show_batch(feed, accumulation, ranks),
        **sizes,
        "planned_steps": steps,
        "brim": brim.__version__,
        "commit": commit_of(code_folder()),
        "command": shlex.join(sys.argv),
    }
    return {name: fact for name, fact in facts.items() if fact}


def show_parameters(parameters: Iterable[nn.Parameter]) -> str:
    """
    >>> show_parameters(nn.Linear(1000, 2).requires_grad_(False).parameters())
    '2,002, of which 0 are trained'
    """
    counts = [(parameter.numel(), parameter.requires_grad) for parameter in parameters]
    total, trained = sum(count for count, _ in counts), sum(count for count, is_trained in counts if is_trained)
    return f"{total:,}" if total == trained else f"{total:,}, of which {trained:,} are trained"


def show_optimizer(optimizer: Optimizer) -> str:
    """Its class and the settings of its first group.

    >>> import torch
    >>> show_optimizer(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9))
    'SGD, lr 0.1, momentum 0.9'
    """
    first, groups = optimizer.param_groups[0], len(optimizer.param_groups)
    chosen = {name: first[name] for name in SHOWN_SETTINGS if first.get(name)}
    settings = [f"{name.replace('_', ' ')} {_plain(value)}" for name, value in chosen.items()]
    return ", ".join([type(optimizer).__name__, *settings, *([f"{groups} parameter groups"] if groups > 1 else [])])


def show_batch(feed: Feed, accumulation: int, ranks: int) -> str:
    """The optimisation batch, and what it consists of."""
    if not isinstance(feed, Loader):
        return "as the data comes" + (f", {accumulation} accumulated" if accumulation > 1 else "")
    shared = f", shared by {ranks} ranks" if ranks > 1 else ""
    if accumulation == 1:
        return f"{feed.batch_size:,}{shared}"
    return f"{feed.batch_size * accumulation:,} ({accumulation} x {feed.batch_size:,}){shared}"


def size_of(data: Any) -> str:
    """How much data there is, where that is known without reading it.

    >>> import torch
    >>> size_of((torch.zeros(3200, 2), torch.zeros(3200))), size_of([torch.zeros(8, 2)] * 40)
    ('3,200 samples', '40 batches')
    """
    if isinstance(data, Loader):
        return "" if data.samples is None else f"{data.samples:,} samples"
    data = data.dataset if isinstance(data, DataLoader) else _first_column(data)
    length = known_length(data)
    if length is None:
        return ""
    is_batches = isinstance(data, list | tuple) and not isinstance(data, Tensor)
    return f"{length:,} {'batches' if is_batches else 'samples'}"


def _first_column(data: Any) -> Any:
    """Of columns the first one; anything else as it is."""
    if not isinstance(data, tuple | Mapping) or not data:
        return data
    first = next(iter(data.values() if isinstance(data, Mapping) else data))
    return _first_column(first) if isinstance(first, Sized) else data


def size_of_sets(data: Any) -> str:
    """The same of data to judge by, which may be several sets by name.

    >>> size_of_sets({"clean": [(1, 2)], "noisy": [(3, 4), (5, 6)]})
    'clean: 1 batches, noisy: 2 batches'
    """
    if (sets := named_sets(data)) is None:
        return size_of(data)
    sizes = {name: size_of(one) for name, one in sets.items()}
    return ", ".join(f"{name}: {size}" for name, size in sizes.items() if size)


def code_folder() -> Path:
    """Where the script lies that runs; for a command or a notebook, where one is."""
    script = Path(sys.argv[0]) if sys.argv else Path()
    return script.resolve().parent if script.suffix == ".py" else Path.cwd()


def commit_of(folder: Path) -> str:
    """The commit of the code in ``folder``, with a word where it was changed since; nothing outside a repository."""
    found = _git(folder, "rev-parse", "--short", "HEAD")
    if found is None or found.returncode:
        return ""
    changed = _git(folder, "diff", "--quiet", "--no-ext-diff", "--no-textconv", "HEAD")
    return found.stdout.strip() + (" with changes" if changed is not None and changed.returncode == 1 else "")


def _git(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str] | None":
    try:
        return subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments],
            capture_output=True, text=True, timeout=GIT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def _plain(value: Any) -> str:
    if isinstance(value, float | Tensor):
        return f"{float(value):g}"
    return str(value)
