"""The workload ``forecaster``: training, planning and measuring what its configuration describes."""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from brim.data import Loader
from brim.engine import Result, Trainer
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.errors import DataError, RunFolderError
from brim.record import RunFolder, write_report
from brim.record.run_folder import RESULT
from brim.workloads.forecaster.config import ForecasterConfig
from brim.workloads.forecaster.data.dataset import SeriesDataset
from brim.workloads.forecaster.data.embedded import embedded_series
from brim.workloads.forecaster.fall_back import gain_over_last
from brim.workloads.forecaster.lstm_forecaster import LSTMForecaster
from brim.workloads.forecaster.run_forecast import write_forecast, write_preparation
from brim.workloads.forecaster.scores import forecast_metrics, naive_rows, told_worse
from brim.workloads.outcome import JobFacts, Outcome, judged_by
from brim.workloads.sections import FOR_WORKERS, LoaderSection, job_of, show_config, trainer_arguments, without_effect

FALL_BACK = "repeat last, learned bands"
CONTROL = "without-lstm"  # its run folder, within that of the run
COLUMNS = ("mse", "mae")
BATCH_SIZE = 128  # where the configuration says null


class ForecasterWorkload:
    """The forecaster that ``config`` describes. Its data is read once, when it is first needed."""

    def __init__(self, config: ForecasterConfig) -> None:
        self.config = config

    @cached_property
    def dataset(self) -> SeriesDataset:
        given = self.config.data.model_dump()
        path = given.pop("path")
        return SeriesDataset(embedded_series() if path is None else path, **given)

    def read(self) -> JobFacts:
        """Read the data, and tell what is measured."""
        assert self.dataset
        return JobFacts(_batch_size(self.config.train_ds))

    def build_model(self, **changes: Any) -> LSTMForecaster:
        """A fresh model for the data, by the trainer's seed."""
        torch.manual_seed(trainer_arguments(self.config.trainer)["seed"])
        return LSTMForecaster.for_dataset(self.dataset, **{**self.config.model.model_dump(), **changes})

    def build_trainer(self, whole_batches: bool = False, **changes: Any) -> Trainer:
        """The trainer, but for ``changes`` of its arguments; ``whole_batches`` leaves out a shorter last one."""
        return self._trainer_of(self.build_model(), whole_batches, **changes)

    def _trainer_of(self, model: LSTMForecaster, whole_batches: bool = False, **changes: Any) -> Trainer:
        config, dataset = self.config, self.dataset
        train = dataset.get_split_data("train")
        whole = {"drop_last": True} if whole_batches and len(train) >= _batch_size(config.train_ds) else {}
        test = dataset.get_split_data("test")
        arguments = trainer_arguments(config.trainer)
        metrics = {} if arguments["metrics"] else {"metrics": forecast_metrics(model)}
        return Trainer(
            model,
            _loader(train, config.train_ds, **{"shuffle": True, **whole}),
            _loader(dataset.get_split_data("validation"), config.valid_ds, shuffle=False),
            _loader(test, config.test_ds, shuffle=False) if len(test) else None,
            **{**arguments, **metrics, **changes},
        )

    def run(self, resume: str | Path | None = None) -> Outcome:
        """Train and test; then the naive rows, the same without the LSTM, and the forecast. The first rank writes."""
        model = self.build_model()
        trainer = self._trainer_of(model)
        trainer.config = show_config(self.config)
        trainer.journal.say(f"series: {self.dataset!r}", "data")
        for sentence in self.dataset.notes:
            trainer.journal.warn(f"series: {sentence}", "data")
        for sentence in without_effect(self.config, "windows are views of series in memory, read without workers"):
            trainer.journal.warn(sentence, "data")
        result = trainer.fit(resume=resume)
        table = {_row_name(model): result.metrics}
        if result.run.exists():  # fast_dev_run leaves none
            if self.config.fall_back:
                table = self._fall_back(trainer, model, result) | table
            if self.config.without_lstm and self.config.model.layers:
                table["the same without the LSTM"] = self._control(result)
            if trainer.ranks.is_first:
                part = "validation" if trainer.test_data is None else "test"
                table |= naive_rows(self.dataset, part)
                metric = "mse" if model.loss == "mse" and not model.quantiles else "mae"
                trainer.journal.warn_for_all(told_worse(table, metric, part), "naive forecasts")
                self._leave(trainer, model, result, table)
        trainer.ranks.barrier()  # nobody ends while another is at work: a launcher would take that for a failure
        columns = [name for name in (*COLUMNS, "coverage") if name in result.metrics]
        return Outcome(result, table, tuple(columns) or tuple(result.metrics), judged_by(trainer))

    def _fall_back(self, trainer: Trainer, model: LSTMForecaster, result: Result) -> dict[str, dict[str, float]]:
        """Forecast the last value from now on, where validation shows no gain over it; the row of that."""
        gain = trainer.ranks.broadcast_object(gain_over_last(model, self.dataset))
        if gain is None or gain.is_sure:
            return {}
        model.repeats_last.fill_(True)
        if trainer.ranks.is_first:
            Checkpoints(RunFolder.open(result.run).checkpoints, keep=1).save_final(model, result.steps)
            trainer.journal.warn(
                f"on the validation part the loss of {_row_name(model)} is {gain}: no sure gain, so this run "
                "forecasts the last value, with the bands that it learned (fall_back=false forecasts what it learned)",
                "fall back",
            )
        return {FALL_BACK: trainer.evaluate()}

    def _control(self, result: Result) -> dict[str, float]:
        """The same training with no LSTM between window and head."""
        where = result.run / CONTROL
        trainer = self._trainer_of(self.build_model(layers=0), run_dir=where, loggers=False)
        trainer.journal.say("training the same without the LSTM, for its row in the table", "control")
        return trainer.fit(resume="auto").metrics

    def _leave(
        self, trainer: Trainer, model: LSTMForecaster, result: Result, table: dict[str, dict[str, float]]
    ) -> None:
        """The table, the forecast and what later forecasts need, in the run folder; and its page once more."""
        folder, dataset = RunFolder.open(result.run), self.dataset
        try:
            folder.write_json(RESULT, {**folder.read_json(RESULT), "table": table})
            write_preparation(folder, dataset)
            _, notes = write_forecast(folder, model, dataset.series, dataset.preparation, dataset.step)
            for sentence in notes:
                trainer.journal.warn(sentence, "forecast")
        except DataError as error:  # a future that is not known yet; brim forecast asks for it again
            trainer.journal.warn(f"no forecast beyond the end of the series: {error}", "forecast")
        except (RunFolderError, OSError) as error:  # a full disk; the caller has the table
            trainer.journal.warn(f"the table of metrics or the forecast is not in the run folder: {error}")
        write_report(folder)

    def plan_job(self) -> dict[str, Any]:
        """The arguments of `brim.plan` for this training."""
        return job_of(self.build_model(), _batch_size(self.config.train_ds), self.config.trainer)

    def cache_choice(self) -> tuple[bool | None, str]:
        """There is nothing to encode."""
        return None, ""


def _row_name(model: LSTMForecaster) -> str:
    settings = model.arguments
    by = f", segments of {settings['segment']}" if settings["segment"] else ""
    return f"LSTM {settings['hidden']} x {settings['layers']}{by}" if settings["layers"] else "without the LSTM"


def _batch_size(section: LoaderSection) -> int:
    return section.batch_size or BATCH_SIZE


def _loader(data: Any, section: LoaderSection, **further: Any) -> Loader:
    asked = {name: value for name, value in section.asked.items() if name not in FOR_WORKERS}
    return Loader(data, **{"batch_size": BATCH_SIZE, **further, **asked})
