"""The configuration of the forecaster."""

from typing import Any, Literal

from pydantic import Field, field_validator

from brim.workloads.forecaster.forecast_loss import check_quantiles
from brim.workloads.sections import EvalLoaderSection, LoaderSection, Section, TrainerSection


class SeriesSection(Section):
    """``data``: which series to forecast, see :class:`brim.workloads.forecaster.SeriesDataset`."""

    path: str | None = Field(None, description="a CSV or Parquet file; nothing: a daily series of brim's own")
    lookback: int = Field(96, ge=1, le=1_000_000, description="steps that a forecast is made from")
    horizon: int = Field(24, ge=1, le=100_000, description="steps that are forecast")
    target: str | list[str] | None = Field(None, description="columns to forecast; all numbers, unless given")
    time: str | None = Field(None, description="the column of dates; found, unless given")
    series: str | None = Field(None, description="the column that tells series apart, where there are many")
    known: str | list[str] = Field([], description="columns whose future is known")
    static: str | list[str] = Field([], description="columns about a series as a whole")
    split: list[Any] | None = Field(
        None, description="shares, numbers of steps, or two dates; 0.7, 0.1, 0.2 unless given"
    )
    calendar: bool | str | list[str] = Field(False, description="auto, or of hour, weekday, monthday, yearday, month")
    scale: bool = Field(True, description="by mean and spread of the training steps")
    season: int | None = Field(None, ge=1, description="steps of a season; by the step, unless given")
    stride: int = Field(1, ge=1, description="steps from one training window to the next")


class NetworkSection(Section):
    """``model``: what is trained, see :class:`brim.workloads.forecaster.LSTMForecaster`."""

    hidden: int = Field(128, ge=1, le=65_536, description="width of the LSTM")
    layers: int = Field(1, ge=0, le=64, description="of the LSTM; 0 leaves it out")
    segment: int | Literal["auto"] | None = Field("auto", description="steps read at a time; auto: a season; null: one")
    dropout: float = Field(0.3, ge=0, lt=1, description="between layers, and before the head")
    linear: bool | Literal["auto"] = Field("auto", description="a linear path beside the LSTM; auto: for few windows")
    subtract_last: bool = Field(True, description="put predictions on the last value of the window")
    reversible: bool = Field(True, description="take mean and spread out of each window, and put them back")
    quantiles: list[float] = Field([0.1, 0.5, 0.9], description="bands by the pinball loss; empty: one value by loss")
    loss: Literal["l1", "mse"] = Field("l1", description="where there are no quantiles")

    @field_validator("quantiles")
    @classmethod
    def check_levels(cls, quantiles: list[float]) -> list[float]:
        return list(check_quantiles(quantiles))


class TrainingWindows(LoaderSection):
    """``train_ds``: how training windows are batched."""

    batch_size: int | None = Field(128, ge=1, description="windows of a batch, over all GPUs")


class JudgedWindows(EvalLoaderSection):
    """``valid_ds`` and ``test_ds``: the same for those that are judged."""

    batch_size: int | None = Field(1024, ge=1, description="windows that are judged at once")


class ForecasterConfig(Section):
    """Everything that decides a run of the forecaster."""

    workload: Literal["forecaster"] = "forecaster"
    data: SeriesSection = SeriesSection()
    model: NetworkSection = NetworkSection()
    fall_back: bool = Field(True, description="forecast the last value where validation shows no gain over it")
    without_lstm: bool = Field(True, description="train the same without the LSTM as well, for its row in the table")
    train_ds: TrainingWindows = TrainingWindows()
    valid_ds: JudgedWindows = JudgedWindows()
    test_ds: JudgedWindows = JudgedWindows()
    trainer: TrainerSection = Field(default_factory=lambda: TrainerSection(**TRAINER_DEFAULTS))  # type: ignore[valid-type]


# What this workload wants other than the trainer's own defaults.
TRAINER_DEFAULTS: dict[str, Any] = {"epochs": 60, "lr": 1e-3, "patience": 6}
