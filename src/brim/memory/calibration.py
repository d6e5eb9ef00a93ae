"""What one small real step on the card present says about the rest of them.

Forecasts come from rules; where a card, driver or torch version was not measured, the rules for the context and for
what kernels allocate may be off by a constant. ``calibrate`` runs one small step for real and keeps the difference, for
that card and torch version, in the user's cache folder: after a new driver it is to be run again.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brim.errors import ConfigError
from brim.hardware import inventory
from brim.hardware.cards import Card, card_of
from brim.hardware.host import cache_folder
from brim.memory.context import Context, context_of
from brim.whole_files import written_aside


@dataclass(frozen=True)
class Calibration:
    """What was measured on this machine; None or 0 where nothing was."""

    context: int | None = None
    extra_reserved: int = 0

    def context_of(self, card: Card, uses_cublas: bool, uses_cudnn: bool) -> Context:
        if self.context is None:
            return context_of(card, uses_cublas, uses_cudnn)
        return Context(self.context, self.context, self.context)


def calibration_of(card: Card, runtime: tuple[int, int]) -> Calibration:
    """What was measured before on this kind of card, or nothing."""
    try:
        content = json.loads(calibration_file(card, runtime).read_text())
        kept = Calibration(content["context"], content["extra_reserved"])
    except (OSError, ValueError, TypeError, KeyError):
        return Calibration()
    figures = (kept.context if kept.context is not None else 0, kept.extra_reserved)
    return kept if all(type(figure) is int and figure >= 0 for figure in figures) else Calibration()


def remember(calibration: Calibration, card: Card, runtime: tuple[int, int]) -> Path:
    """Keep it for later forecasts on this machine."""
    file = calibration_file(card, runtime)
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(file) as aside:
        aside.write_text(json.dumps(asdict(calibration)))
    return file


def calibration_file(card: Card, runtime: tuple[int, int]) -> Path:
    name = "-".join(card.name.lower().split())
    return cache_folder() / f"calibration-{name}-torch{runtime[0]}.{runtime[1]}.json"


def calibrate() -> tuple[Calibration, Path]:
    """Measure one small training step on the first GPU: its context, and what it reserves beyond the forecast."""
    from brim.memory.forecast import forecast, parse_runtime  # which asks this module about earlier calibrations

    gpus = inventory().gpus
    if not gpus:
        raise ConfigError("there is no GPU in this machine to calibrate with")
    card, runtime = card_of(gpus[0]), parse_runtime(None)
    calibration_file(card, runtime).unlink(missing_ok=True)  # the forecast below is that of the rules alone
    expected = forecast(_small_model, _small_batch, lambda output: output.sum(), batch_size=SMALL_BATCH, card=card)
    reserved = _train_small_model()
    free, total = torch.cuda.mem_get_info(0)
    # The context is what the card lost beyond what torch reserves. Another process would spoil it: nobody else here.
    found = Calibration(
        context=max(0, total - free - torch.cuda.memory_reserved(0)),
        extra_reserved=max(0, reserved - expected.reserved),
    )
    return found, remember(found, card, runtime)


SMALL_BATCH = 32


def _small_model() -> nn.Module:
    """Convolution, recurrence and products: every library that a training run loads."""
    return _Small()


def _small_batch(n: int) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    return (torch.randn(n, 3, 32, 32),), {}


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3, padding=1)
        self.recurrence = nn.LSTM(16 * 32, 64, batch_first=True)
        self.head = nn.Linear(64, 8)

    def forward(self, images: Tensor) -> Tensor:
        rows = self.convolution(images).permute(0, 2, 1, 3).flatten(2)
        head: Tensor = self.head(self.recurrence(rows)[0][:, -1])
        return head


def _train_small_model() -> int:
    model = _small_model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        args, _ = _small_batch(SMALL_BATCH)
        optimizer.zero_grad(set_to_none=True)
        model(*(tensor.cuda() for tensor in args)).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved()
