"""Numbers of a run for MLflow."""

import os
import re
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from brim.arguments.known import known_arguments
from brim.errors import ConfigError, a_type
from brim.record.json_object import flat
from brim.record.loggers.run_facts import Ending, generators_kept, remember_run, remembered_run, run_facts

IDENTITY = "mlflow.json"  # in the run folder: which run of theirs goes on where this one is resumed
SEND_SECONDS = 1.0  # a call writes files or goes over the network: all numbers of a second go together
MOST_NUMBERS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 6000  # in one call, by their own limits
DEFAULT_EXPERIMENT = "0"
REFUSED = re.compile(r"[^\w\-. :/]")  # in the name of a metric or of a parameter


class MLflowLogger:
    """Every line of numbers for MLflow, with the settings of the run; ``loggers="mlflow"`` makes one.

    A run that is resumed goes on as the same run there. Inside ``with mlflow.start_run():``, ``MLflowLogger()`` takes
    that run and leaves it open at the end.

    Args:
        experiment: its name there, made where there is none; None for the one that is set (``mlflow.set_experiment``,
            ``MLFLOW_EXPERIMENT_NAME``), else MLflow's default.
        name: of the run; None for the name of the run folder.
        tracking_uri: a server (``"http://..."``) or a local store (``"sqlite:///mlflow.db"``); None for the one that is
            set (``mlflow.set_tracking_uri``, ``MLFLOW_TRACKING_URI``), else MLflow's default.
        tags: of the run, by name.

    >>> logger = MLflowLogger(experiment="mnist", tracking_uri="sqlite:///mlflow.db")
    """

    @known_arguments
    def __init__(
        self,
        experiment: str | None = None,
        name: str | None = None,
        tracking_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        for argument, value in {"experiment": experiment, "name": name, "tracking_uri": tracking_uri}.items():
            if value is not None and not isinstance(value, str):
                raise ConfigError(f"MLflowLogger({argument}=) is a text, and this is {a_type(value)}")
        self._experiment, self._name, self._uri, self._tags = experiment, name, tracking_uri, dict(tags or {})
        self._client: Any = None
        self._run_id = ""
        self._is_ours = False
        self._waiting: list[Any] = []
        self._sent = 0.0
        self._ending = Ending()

    def start(self, folder: Path) -> None:
        """Begin a run of theirs, or go on with the one that the run folder names."""
        self._waiting, self._sent, self._ending = [], time.monotonic(), Ending()
        with generators_kept():
            import mlflow

            is_plain = not (self._experiment or self._name or self._uri)
            active = mlflow.active_run() if is_plain else None
            uri = self._uri or mlflow.get_tracking_uri()
            self._client = mlflow.MlflowClient(tracking_uri=uri)
            self._is_ours = active is None
            self._run_id = active.info.run_id if active is not None else self._begin(folder, uri)
            self._tell_facts(folder)

    def write(self, step: int, epoch: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        for name, value in {**numbers, "epoch": epoch}.items():
            self._waiting.append(Metric(REFUSED.sub("_", name), float(value), now, step))
        if time.monotonic() - self._sent >= SEND_SECONDS:
            self._send()

    def close(self) -> None:
        if self._client is None:
            return
        try:
            self._send()
        finally:
            client, self._client = self._client, None
            if self._is_ours:
                client.set_terminated(self._run_id, self._ending.status())

    def _send(self) -> None:
        waiting = iter(self._waiting)
        self._waiting, self._sent = [], time.monotonic()
        while some := list(islice(waiting, MOST_NUMBERS)):
            self._client.log_batch(self._run_id, metrics=some)

    def _begin(self, folder: Path, uri: str) -> str:
        known = remembered_run(folder, IDENTITY)
        if "run_id" in known and known.get("tracking_uri") == uri:
            run_id = str(known["run_id"])
            self._client.update_run(run_id, status="RUNNING")
        else:
            name = self._name or folder.resolve().name
            run_id = self._client.create_run(self._experiment_id(), run_name=name).info.run_id
            remember_run(folder, IDENTITY, {"run_id": run_id, "tracking_uri": uri})
        for tag, value in self._tags.items():
            self._client.set_tag(run_id, tag, value)
        return run_id

    def _experiment_id(self) -> str:
        chosen = os.environ.get("MLFLOW_EXPERIMENT_ID")  # mlflow.set_experiment leaves it there, too
        name = self._experiment or (None if chosen else os.environ.get("MLFLOW_EXPERIMENT_NAME"))
        if name is None:
            return chosen or DEFAULT_EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _tell_facts(self, folder: Path) -> None:
        """As parameters, which MLflow lets nobody change: where a run is resumed with others, the first ones stay."""
        from mlflow.entities import Param

        told = self._client.get_run(self._run_id).data.params
        facts = {REFUSED.sub("_", name): str(value)[:LONGEST_PARAM] for name, value in flat(run_facts(folder)).items()}
        params = iter([Param(name, value) for name, value in facts.items() if name not in told])
        while some := list(islice(params, MOST_PARAMS)):
            self._client.log_batch(self._run_id, params=some)
