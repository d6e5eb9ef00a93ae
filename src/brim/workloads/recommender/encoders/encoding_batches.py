"""Texts in batches that an encoder reads at once: of like length, so that little of what it reads is padding."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from brim.errors import BrimError
from brim.memory import largest_batch

TOKENS_ON_CPU = 4096  # read at once: beyond that two cores become no faster
TOKENS_ON_GPU = 1 << 16  # enough to keep one busy
SPARE = 0.8  # of the free memory that encoding may take


def encoding_batches(lengths: Tensor, most_tokens: int | None = None) -> Iterator[Tensor]:
    """Rows of texts, shortest first, so many at a time that they hold at most ``most_tokens`` with their padding.

    >>> [rows.tolist() for rows in encoding_batches(torch.tensor([2, 1, 8, 1]), most_tokens=8)]
    [[1, 3, 0], [2]]
    """
    most = most_tokens or (TOKENS_ON_CPU if lengths.device.type == "cpu" else TOKENS_ON_GPU)
    order = torch.argsort(lengths, stable=True)
    if isinstance(lengths, FakeTensor):  # a forecast: the longest ones decide the memory
        yield from torch.split(order, max(1, most // max(1, int(lengths.max()))))
        return
    begin, sizes = 0, lengths[order].tolist()
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or (end + 1 - begin) * sizes[end] > most:
            yield order[begin:end]
            begin = end


def forecast_tokens(encoder: nn.Module, longest: int, device: torch.device, batch: Callable[[int], object]) -> int:
    """How many tokens fit into the memory of ``device`` at once, by the forecast; the usual number on a CPU.

    Args:
        encoder: called with what ``batch(n)`` returns.
        longest: tokens of the texts in such a batch.
        device: where it will compute.
        batch: n texts of ``longest`` tokens.
    """
    if device.type != "cuda":
        return TOKENS_ON_CPU
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    return min(TOKENS_ON_GPU, longest * texts_that_fit(encoder, batch, int(SPARE * free)))


def texts_that_fit(encoder: nn.Module, batch: Callable[[int], object], memory: int, card: str | None = None) -> int:
    """How many of the texts of ``batch(n)`` can be encoded at once in ``memory`` bytes; 1 where that is not known."""
    try:
        return largest_batch(
            _WithoutGradients(encoder), lambda n: ((batch(n),), {}), lambda loss: loss, memory=memory, card=card
        )
    except BrimError:  # not even one, or a model that cannot be traced: encoding itself will tell
        return 1


class _WithoutGradients(nn.Module):
    """What encoding does, in the form of a training step, which is what a forecast is about."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.unit = nn.Parameter(torch.ones((), device=next(encoder.parameters()).device))

    def forward(self, texts: object) -> Tensor:
        with torch.no_grad():
            encoded: Tensor = self.encoder(texts)
        return self.unit * encoded.sum()
