"""The LSTM that predicts the next steps of a series from a window of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from brim.engine import Loss
from brim.engine.checkpoints.weights import load_weights, save_weights
from brim.errors import BrimError, ConfigError
from brim.sizes import check_whole
from brim.workloads.forecaster.encoders import SegmentEncoder, StepEncoder
from brim.workloads.forecaster.forecast_loss import check_quantiles, forecast_loss
from brim.workloads.forecaster.window_scale import WindowScale, put_back

if TYPE_CHECKING:
    from brim.workloads.forecaster.data.dataset import SeriesDataset

CONFIG, WEIGHTS = "config.json", "model.safetensors"
MOST_LAYERS = 64
FEW_WINDOWS = 4000
LOSSES = ("l1", "mse")


class LSTMForecaster(nn.Module):
    """All steps of the horizon at once, from the last state of an LSTM over the window (a direct head).

    Each window has its level taken out and is divided by its own spread; what the network says is put back into the
    values of the window. With ``segment`` the LSTM reads each channel by itself, some steps at a time: ETTh1's 96 hours
    are four days, embedded by one linear layer, and that is far easier to learn from than 96 single steps.

    Args:
        lookback: steps of the window.
        horizon: steps that are predicted.
        channels: values at each step that are predicted, from those of the window.
        hidden: width of the LSTM.
        layers: of the LSTM; 0 leaves it out, for comparison: the embedded window goes to the head as it is.
        segment: steps that are read at a time, channel by channel; None for single steps of all channels together.
        dropout: between the layers of the LSTM, and before the head.
        linear: a linear path from each channel's window to its horizon beside the LSTM, as LSTNet has it (Lai et al.,
            2018): what is linear need not be learned through the LSTM.
        subtract_last: predictions are put on the last value of their window.
        reversible: each window is seen less its mean and divided by its own standard deviation, which predictions are
            multiplied by; with ``subtract_last`` the level is between last value and mean, learned for each step ahead.
        quantiles: what is predicted, (0.1, 0.5, 0.9) say, by the pinball loss; empty for one value by ``loss``.
        loss: ``"l1"`` or ``"mse"``, where there are no ``quantiles``.
        known: how many covariates are known for the window and for the horizon, the calendar's say.
        static: how many numbers describe a series as a whole.

    >>> model = LSTMForecaster(lookback=14, horizon=7, hidden=8)
    >>> model(torch.zeros(5, 14, 1)).shape
    torch.Size([5, 7, 1])
    """

    repeats_last: Tensor

    def __init__(
        self,
        lookback: int,
        horizon: int,
        channels: int = 1,
        *,
        hidden: int = 64,
        layers: int = 2,
        segment: int | None = None,
        dropout: float = 0.0,
        linear: bool = False,
        subtract_last: bool = True,
        reversible: bool = True,
        quantiles: Sequence[float] = (),
        loss: str = "l1",
        known: int = 0,
        static: int = 0,
    ) -> None:
        super().__init__()
        _check_sizes(lookback, horizon, channels, hidden, layers, segment)
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            raise ConfigError(f"dropout={dropout!r} must be a number from 0 to below 1")
        if loss not in LOSSES:
            raise ConfigError(f"loss={loss!r} is none of {', '.join(LOSSES)}; quantiles=(0.1, 0.5, 0.9) for bands")
        self.quantiles = check_quantiles(quantiles)
        # What builds it again, plain data: it stands in model.json of a run folder.
        self.arguments: dict[str, Any] = {
            "lookback": lookback, "horizon": horizon, "channels": channels, "hidden": hidden, "layers": layers,
            "segment": segment, "dropout": dropout, "linear": linear, "subtract_last": subtract_last,
            "reversible": reversible, "quantiles": list(self.quantiles), "loss": loss, "known": known, "static": static,
        }  # fmt: skip
        self.lookback, self.horizon, self.channels, self.loss = lookback, horizon, channels, loss
        self.scale = WindowScale(horizon, subtract_last, reversible)
        outputs = max(1, len(self.quantiles))
        kind = StepEncoder if segment is None else SegmentEncoder
        self.encoder = kind(lookback, channels, hidden, layers, segment or 1, dropout, known, static)
        self.drop = nn.Dropout(dropout)
        self.linear = nn.Linear(lookback, horizon * outputs) if linear else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)  # it begins with the level alone
            nn.init.zeros_(self.linear.bias)
        # Of a segmented window each channel has a state of its own, and the head is shared by them.
        self.by_channel = segment is not None
        at_once, width = outputs * (1 if self.by_channel else channels), self.encoder.width
        self.head = nn.Linear(width, horizon * at_once)
        steps = [nn.Linear(width + known, hidden), nn.ReLU(), nn.Linear(hidden, at_once)] if known else []
        self.ahead = nn.Sequential(*steps) if known else None
        # Set after training, where validation shows no gain over the last value: saved with the weights.
        self.register_buffer("repeats_last", torch.tensor(False))

    @classmethod
    def for_dataset(
        cls, dataset: "SeriesDataset", segment: int | str | None = "auto", linear: bool | str = "auto", **settings: Any
    ) -> Self:
        """A model of the sizes of a data set.

        Args:
            dataset: what it will be trained on.
            segment: as for the model; ``"auto"`` for a season of the data, or a quarter of the window without one.
            linear: as for the model; ``"auto"`` where there are few training windows, from which an LSTM alone would
                learn too little.
            settings: further arguments of the model.

        >>> import numpy as np
        >>> from brim.workloads.forecaster import SeriesDataset
        >>> LSTMForecaster.for_dataset(SeriesDataset(np.arange(200.0), 28, 7), hidden=8).arguments["segment"]
        7
        """
        if isinstance(segment, str):
            if segment != "auto":
                raise ConfigError(f"segment={segment!r} must be a number of steps, 'auto', or None")
            has_season = 1 < dataset.season <= dataset.lookback // 2
            segment = dataset.season if has_season else max(1, dataset.lookback // 4)
        if isinstance(linear, str):
            if linear != "auto":
                raise ConfigError(f"linear={linear!r} must be True, False or 'auto'")
            linear = len(dataset.starts("train")) < FEW_WINDOWS
        settings |= {"segment": segment, "linear": linear, "known": dataset.known_count, "static": dataset.static_count}
        return cls(dataset.lookback, dataset.horizon, len(dataset.channels), **settings)

    def forward(self, past: Tensor, known: Tensor | None = None, static: Tensor | None = None) -> Tensor:
        """The horizon: (samples, horizon, channels), with a last dimension of quantiles where there are some.

        Args:
            past: windows, (samples, lookback, channels).
            known: covariates of the window and of the horizon, (samples, lookback + horizon, known).
            static: (samples, static).
        """
        window, level, spread = self.scale(past)
        seen = None if known is None else known[:, : self.lookback]
        state = self.drop(self.encoder(window, seen, static))  # (samples, [channels,] width)
        predicted = self._by_step(self.head(state))
        if self.linear is not None:
            beside: Tensor = self.linear(window.transpose(1, 2))
            predicted = predicted + beside.reshape(*beside.shape[:2], self.horizon, -1).transpose(1, 2)
        if self.ahead is not None and known is not None:
            predicted = predicted + self._of_known(state, known[:, self.lookback :])
        predicted = put_back(predicted, level, spread)
        predicted = predicted if self.quantiles else predicted[..., 0]
        return (
            predicted if self.training else torch.where(self.repeats_last, self.around_last(predicted, past), predicted)
        )

    def around_last(self, predicted: Tensor, past: Tensor) -> Tensor:
        """The last value of the window in place of what was predicted, with the same bands around it."""
        last = past[:, -1:]
        if not self.quantiles:
            return last.expand_as(predicted)
        bands = predicted.sort(-1).values
        return bands - self.point(bands)[..., None] + last[..., None]

    def _by_step(self, given: Tensor) -> Tensor:
        """What the head gives as (samples, horizon, channels, outputs)."""
        if self.by_channel:
            return given.reshape(*given.shape[:2], self.horizon, -1).transpose(1, 2)
        return given.reshape(len(given), self.horizon, self.channels, -1)

    def _of_known(self, state: Tensor, coming: Tensor) -> Tensor:
        """What the covariates of each coming step add, given the state."""
        assert self.ahead is not None
        if self.by_channel:
            coming = coming[:, None].expand(-1, self.channels, -1, -1)
        together = torch.cat([state.unsqueeze(-2).expand(*coming.shape[:-1], -1), coming], -1)
        added: Tensor = self.ahead(together)
        return added.transpose(1, 2) if self.by_channel else added.reshape(*added.shape[:2], self.channels, -1)

    def calculate_loss(self, batch: Sequence[Tensor]) -> Loss:
        """Over the targets that are there; a batch is (past, target[, known][, static])."""
        past, target, known, static = self.parts(batch)
        return forecast_loss(self(past, known, static), target, self.quantiles, self.loss)

    def predict(self, batch: Sequence[Tensor]) -> Tensor:
        """The horizon for a batch as training sees it; quantiles in their order, where a network may cross them."""
        past, _, known, static = self.parts(batch)
        predicted: Tensor = self(past, known, static)
        return predicted.sort(-1).values if self.quantiles else predicted

    def parts(self, batch: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """A batch as past, target, known and static; None for what this model does not take."""
        past, target, *more = batch
        known = more.pop(0) if self.arguments["known"] else None
        return past, target, known, more.pop(0) if self.arguments["static"] else None

    def example_batch(self, size: int) -> tuple[Tensor, ...]:
        """A batch such as training sees, for forecasts of memory."""
        known, static = self.arguments["known"], self.arguments["static"]
        steps = self.lookback + self.horizon
        batch = [torch.randn(size, self.lookback, self.channels), torch.randn(size, self.horizon, self.channels)]
        batch += [torch.randn(size, steps, known)] if known else []
        return (*batch, torch.randn(size, static)) if static else tuple(batch)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what :meth:`from_pretrained` reads: ``config.json`` and ``model.safetensors``."""
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            (place / CONFIG).write_text(json.dumps({"model": type(self).__name__, **self.arguments}, indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write the model to {place}: {error.strerror}; name another folder") from error
        save_weights(self, place / WEIGHTS)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """The model that :meth:`save_pretrained` wrote, in eval mode."""
        place = Path(folder)
        try:
            arguments = json.loads((place / CONFIG).read_text())
            name = arguments.pop("model")
            if name != cls.__name__:
                raise ConfigError(f"{place} holds a {name}, not a {cls.__name__}")
            model = cls(**arguments)
        except BrimError:
            raise
        except OSError as error:
            raise ConfigError(f"{place} holds no saved model: {CONFIG}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{place / CONFIG} does not describe a {cls.__name__}") from error
        load_weights(model, place / WEIGHTS)
        return model.eval()

    def point(self, predicted: Tensor) -> Tensor:
        """One value for each step, as forecasts have it: the median once quantiles are in order, or the one nearest."""
        if not self.quantiles:
            return predicted
        middle = min(range(len(self.quantiles)), key=lambda at: abs(self.quantiles[at] - 0.5))
        return predicted.sort(-1).values[..., middle]


def _check_sizes(lookback: int, horizon: int, channels: int, hidden: int, layers: int, segment: int | None) -> None:
    for name, value in (("lookback", lookback), ("horizon", horizon), ("channels", channels), ("hidden", hidden)):
        check_whole(name, value)
    if not isinstance(layers, int) or isinstance(layers, bool) or not 0 <= layers <= MOST_LAYERS:
        raise ConfigError(f"layers={layers!r} must be a whole number up to {MOST_LAYERS}, 0 for none")
    if segment is not None:
        check_whole("segment", segment)
        if segment > lookback:
            raise ConfigError(f"segment={segment} is longer than lookback={lookback}; take a part of it")
