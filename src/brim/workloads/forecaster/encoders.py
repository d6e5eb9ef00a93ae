"""From a window to the state that the head predicts from: step by step, or in segments of each channel."""

import torch
from torch import Tensor, nn


class StepEncoder(nn.Module):
    """An LSTM over single steps of all channels together; with no layers, the window in one linear layer."""

    def __init__(
        self, lookback: int, channels: int, hidden: int, layers: int, segment: int, dropout: float, known: int,
        static: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.width = hidden
        inputs = channels + known
        self.lstm = _lstm(inputs, hidden, layers, dropout)
        self.flat = None if layers else nn.Linear(lookback * inputs, hidden)
        self.static = nn.Linear(static, hidden) if static else None

    def forward(self, window: Tensor, known: Tensor | None, static: Tensor | None) -> Tensor:
        inputs = window if known is None else torch.cat([window, known], -1)
        state = _last_state(self.lstm, inputs) if self.flat is None else self.flat(inputs.flatten(1))
        return state if self.static is None else state + self.static(static)


class SegmentEncoder(nn.Module):
    """An LSTM over embedded segments of each channel by itself; with no layers, the embedded segments side by side.

    Where the window is no whole number of segments, its oldest steps are left out.
    """

    def __init__(
        self, lookback: int, channels: int, hidden: int, layers: int, segment: int, dropout: float, known: int,
        static: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.segment, self.count, self.channels = segment, lookback // segment, channels
        self.width = hidden if layers else hidden * self.count
        self.embed = nn.Linear(segment, hidden)
        self.embed_known = nn.Linear(segment * known, hidden, bias=False) if known else None
        self.embed_static = nn.Linear(static, hidden, bias=False) if static else None
        self.lstm = _lstm(hidden, hidden, layers, dropout)

    def forward(self, window: Tensor, known: Tensor | None, static: Tensor | None) -> Tensor:
        embedded = self.embed(self._segments(window))  # (samples, channels, segments, hidden)
        if self.embed_known is not None and known is not None:
            embedded = embedded + self.embed_known(self._segments(known).transpose(1, 2).flatten(2))[:, None]
        if self.embed_static is not None:
            embedded = embedded + self.embed_static(static)[:, None, None]
        series = embedded.relu().flatten(0, 1)
        state = series.flatten(1) if self.lstm is None else _last_state(self.lstm, series)
        return state.reshape(-1, self.channels, state.shape[-1])

    def _segments(self, window: Tensor) -> Tensor:
        """(samples, steps, channels) as (samples, channels, segments, steps of a segment)."""
        kept = window[:, window.shape[1] - self.count * self.segment :]
        return kept.transpose(1, 2).reshape(len(kept), -1, self.count, self.segment)


def _lstm(inputs: int, hidden: int, layers: int, dropout: float) -> nn.LSTM | None:
    if not layers:
        return None
    return nn.LSTM(inputs, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)


def _last_state(lstm: nn.LSTM | None, inputs: Tensor) -> Tensor:
    assert lstm is not None
    outputs: Tensor = lstm(inputs)[0]
    return outputs[:, -1]
