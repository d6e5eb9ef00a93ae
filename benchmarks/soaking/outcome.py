"""Whether two trainings came to the same."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from brim.engine.checkpoints.checkpoint import TRAINING, Checkpoints
from brim.engine.checkpoints.shared_files import WEIGHTS, checkpoint_damage
from soaking.training import RUN, TRAINED

ROUNDING = 1e-5


class WentWrong(Exception):
    """A trial's outcome is not what was promised."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise WentWrong(what)


def newest_checkpoint(folder: Path) -> Path:
    return Checkpoints(folder / RUN / "checkpoints", 1).all()[-1]


def same_bits(expected: Path, found: Path) -> None:
    """The trained model and everything in the last checkpoint."""
    if not _same_weights(expected / TRAINED, found / TRAINED):
        difference = relative_difference(expected / TRAINED, found / TRAINED)
        raise WentWrong(f"the trained model differs, by {difference:.2g} of its norm")
    same_state(expected, found)


def same_state(expected: Path, found: Path) -> None:
    """The last checkpoint: weights, optimizer, schedule and generators.

    Not its progress: a run that was saved at the last step of an epoch writes that checkpoint once more when it is
    resumed, with the epoch ended and evaluated. A schedule that heeds evaluations has then heard of that one, too.
    """
    one, other = newest_checkpoint(expected), newest_checkpoint(found)
    require(one.name == other.name, f"the last checkpoint is {other.name}, not {one.name}")
    require(_same_weights(one / WEIGHTS, other / WEIGHTS), "the weights of the last step differ")
    states = [torch.load(path / TRAINING, weights_only=True) for path in (one, other)]
    for state in states:
        if "num_bad_epochs" in (state["scheduler"] or ()):
            del state["scheduler"], state["optimizer"]["param_groups"]
    difference = _difference(*states)
    require(difference is None, f"the weights are the same, but the last checkpoint differs in {difference}")


def _same_weights(one: Path, other: Path) -> bool:
    """Bit for bit. Not the files: the order of what safetensors writes about the weights is a matter of chance."""
    bits = [{name: _bits(tensor) for name, tensor in load_file(path).items()} for path in (one, other)]
    return bits[0] == bits[1]


def _bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, list[int]]:
    return tensor.dtype, tensor.shape, tensor.flatten().view(torch.uint8).tolist()


def whole_checkpoints(folder: Path) -> None:
    """Whatever happened, no checkpoint has a name that is not as it was written."""
    for path in Checkpoints(folder / RUN / "checkpoints", 1).all():
        wrong = checkpoint_damage(path)
        require(wrong is None, f"a checkpoint was left damaged: {path.name}, {wrong}")


def same_up_to_rounding(expected: Path, found: Path) -> None:
    difference = relative_difference(expected / TRAINED, found / TRAINED)
    require(difference <= ROUNDING, f"the trained model differs by {difference:.2g} of its norm, more than {ROUNDING}")


def relative_difference(expected: Path, found: Path) -> float:
    """The norm of the difference over all weights, relative to the norm of the weights."""
    one, other = load_file(expected), load_file(found)
    require(one.keys() == other.keys(), f"the weights have other names: {one.keys() ^ other.keys()}")
    joined = [torch.cat([weights[name].double().flatten() for name in sorted(one)]) for weights in (one, other)]
    return float((joined[0] - joined[1]).norm() / joined[0].norm())


def _difference(one: Any, other: Any, path: str = "") -> str | None:
    """The place of the first difference between two nested values."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((found for key in one if (found := _difference(one[key], other[key], f"{path}/{key}"))), None)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        places = enumerate(zip(one, other, strict=True))
        return next((found for at, pair in places if (found := _difference(*pair, f"{path}/{at}"))), None)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return None if one.dtype == other.dtype and torch.equal(one, other) else path
    return None if repr(one) == repr(other) else f"{path} ({one!r:.60}, {other!r:.60})"
