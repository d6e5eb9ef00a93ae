"""Numbers that a loss or a callback logs: kept on the device, read with the losses, averaged over steps and ranks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brim.engine.distributed.ranks import Ranks
from brim.engine.numbers.pass_notes import LoggedNumber, Number
from brim.engine.numbers.summed_loss import Loss


class LoggedNumbers:
    """Collects numbers without reading them; the mean of a window is that of its steps, each over what it counted."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.is_between_steps = True  # what is logged is of the step before then, and not of a trial of the loss
        self._steps = 0
        self._is_ahead = False  # a step has begun that is not among them yet
        self._entries: list[tuple[int, LoggedNumber]] = []  # with the step of the window

    def begin_step(self) -> None:
        """What is added from now on is of the next step."""
        self._is_ahead = True

    def add_step(self, numbers: Sequence[LoggedNumber]) -> None:
        """Another step was made, in which these were logged."""
        self._steps, self._is_ahead = self._steps + 1, False
        if numbers:
            self._entries.extend((self._steps - 1, number) for number in numbers)

    def add(self, name: str, value: Number) -> None:
        """One more number by a callback: of the last step, or of the one that has begun."""
        step = self._steps if self._is_ahead else max(0, self._steps - 1)
        self._entries.append((step, LoggedNumber(name, value, 1)))

    def forget(self) -> None:
        """The steps are made once more."""
        self._steps, self._is_ahead, self._entries = 0, False, []

    def means(self) -> dict[str, float]:
        """The mean of every number over the steps since the last time. All ranks ask at the same moment."""
        steps, entries = max(1, self._steps + self._is_ahead), self._entries
        self.forget()
        if not self.ranks.any_rank(bool(entries)):
            return {}
        own = list(dict.fromkeys(number.name for _, number in entries))
        names = list(dict.fromkeys(name for of_rank in self.ranks.all_gather_object(own) for name in of_rank))
        sums = torch.zeros(len(names), steps, 2, dtype=torch.float64)
        for (step, number), (mean, count) in zip(entries, _read([number for _, number in entries]), strict=True):
            sums[names.index(number.name), step] += torch.tensor([mean * count, count], dtype=torch.float64)
        if not self.ranks.is_alone:
            sums = self.ranks.all_reduce(sums.to(self.ranks.device)).cpu()
        return {name: _mean_of_steps(of_name) for name, of_name in zip(names, sums, strict=True)}


def _mean_of_steps(sums: Tensor) -> float:
    """Of the steps that logged it; a step in which nothing was counted has no value."""
    counted = sums[sums[:, 1] != 0]
    return float((counted[:, 0] / counted[:, 1]).mean()) if len(counted) else float("nan")


def _read(numbers: Sequence[LoggedNumber]) -> list[tuple[float, float]]:
    """Mean and count of each; the device is asked once."""
    plain: list[Tensor | float] = []
    for _, value, count in numbers:
        plain += [value.mean, value.count] if isinstance(value, Loss) else [value, count]
    tensors = [(place, value) for place, value in enumerate(plain) if isinstance(value, Tensor)]
    if tensors:
        device = next((value.device for _, value in tensors if value.device.type != "cpu"), tensors[0][1].device)
        exact = torch.float32 if device.type == "mps" else torch.float64
        read: list[float] = torch.stack([value.to(device, exact).reshape(()) for _, value in tensors]).tolist()
        for (place, _), value in zip(tensors, read, strict=True):
            plain[place] = value
    found = [float(value) for value in plain]
    return list(zip(found[::2], found[1::2], strict=True))
