"""From evaluation data, as the user hands it over, to what evaluates the model on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.engine.captured import ATTEMPT_SECONDS, CapturedLoss
from brim.engine.control.dry_run import limited_evaluation
from brim.engine.control.plateau import follow_direction, follow_monitor
from brim.engine.evaluation.evaluation import Evaluator, MeanLoss, as_evaluator
from brim.engine.evaluation.evaluation_sets import EvaluationSets, named_sets
from brim.engine.evaluation.metrics.metric_set import MetricSet, make_metrics
from brim.engine.evaluation.monitor import Monitor, choose_monitor
from brim.engine.evaluation.rehearsal import refuse_unfit, refuse_unknown_monitor
from brim.engine.run.step_choice import StepChoice
from brim.engine.run.training_setup import TrainingSetup
from brim.engine.run_state.progress import Progress
from brim.errors import ConfigError
from brim.record.key_numbers import is_higher_better

if TYPE_CHECKING:
    from brim.engine.fsdp import ShardedTraining


@dataclass(frozen=True)
class Evaluators:
    """Makes the evaluators of a trainer; ``metrics`` are those of the trainer, for data that has none of its own."""

    choice: StepChoice
    metrics: MetricSet

    @property
    def setup(self) -> TrainingSetup:
        return self.choice.setup

    @classmethod
    def of(cls, choice: StepChoice, *data: Any) -> Evaluators:
        """Those of a trainer with this evaluation and test data; metrics that none of it would have are refused."""
        given, judged = choice.setup.settings.metrics, [one for one in data if one is not None]
        if given is not None and judged and all(isinstance(one, Evaluator) for one in judged):
            raise ConfigError(
                f"metrics= are for batches, and {type(judged[0]).__name__} evaluates the model by itself: compute them "
                "in its evaluate(model)"
            )
        return cls(choice, make_metrics(given, partial(choice.setup.journal.warn, kind="metrics")))

    def evaluator(
        self, data: Any, sharded: ShardedTraining | None = None, metrics: Any = None, comes_again: bool = True
    ) -> Evaluator:
        """What evaluates on ``data``, with ``metrics`` instead of the trainer's where they are given.

        ``comes_again``: it will evaluate more than once, so that graphs of its passes are of use for long.
        """
        made = self.metrics if metrics is None else make_metrics(metrics, self.metrics.tell)
        if metrics is not None and isinstance(data, Evaluator):
            raise ConfigError(f"{type(data).__name__} evaluates the model by itself, so metrics= has no effect on it")
        sets = named_sets(data)
        if sets is None:
            return self._single(data, sharded, made, comes_again)
        singles = {name: self._single(one, sharded, made, comes_again) for name, one in sets.items()}
        return EvaluationSets(singles, self.setup.ranks)

    def monitor(self, evaluator: Evaluator | None) -> Monitor:
        """Which metric decides, by what the user asked for and what the data says."""
        settings = self.setup.settings
        if evaluator is None:
            return Monitor("loss", higher_is_better=False)
        sets = evaluator.sets if isinstance(evaluator, EvaluationSets) else {}
        known = self._known(evaluator)
        own = Monitor(evaluator.monitor, evaluator.higher_is_better)
        return choose_monitor(own, settings.monitor, settings.mode, known, sets)

    def rehearse(self, train_data: Any, eval_data: Any, test_data: Any, evaluator: Evaluator | None) -> None:
        """Refuse data that cannot be evaluated, and a metric to monitor that never comes, before anything is trained.

        Not over ranks, where each would have to come to the same, nor where one of several sets is monitored.
        """
        model = self.setup.model
        for name, data in (("eval_data", eval_data), ("test_data", test_data)):
            if data is not None and named_sets(data) is None:
                one = evaluator if data is eval_data else self.evaluator(data)
                refuse_unfit(name, data, train_data, one, model)
        if evaluator is not None and self.setup.settings.monitor is not None:
            refuse_unknown_monitor(self.monitor(evaluator).name, self._known(evaluator), eval_data, evaluator, model)

    def follow(self, scheduler: Any, monitor: Monitor, progress: Progress) -> None:
        """Let what is best, and a ReduceLROnPlateau, know which metric decides, and in which direction."""
        former = progress.monitor
        if follow_monitor(progress, scheduler, monitor):
            self.setup.journal.warn_for_all(
                f"this run is judged by {_in_words(monitor)}, and the one that it continues was judged by {former!r}"
                f"{' in the other direction' if former == monitor.name else ''}: what was best by that is forgotten, "
                "best weights and patience begin anew",
                "resume",
            )
        mode = self.setup.settings.mode
        if mode is not None and is_higher_better(monitor.name) is (mode == "min") and self.setup.ranks.is_first:
            extreme = "lowest" if mode == "min" else "highest"
            self.setup.journal.warn(
                f"mode={mode!r} takes the {extreme} {monitor.name} as the best, and by its name that is the worst; "
                "leave mode= out to go by the name",
                "monitor",
            )
        if isinstance(scheduler, ReduceLROnPlateau):
            told, is_warning = follow_direction(scheduler, monitor.name, monitor.higher_is_better, progress.best)
            if told:
                (self.setup.journal.warn if is_warning else self.setup.journal.say)(told, "lr")

    def _known(self, evaluator: Evaluator) -> dict[str, bool | None]:
        """Metrics that are known before the first evaluation, and whether higher is better where they say so."""
        if not isinstance(evaluator, EvaluationSets):
            return self._directions(evaluator)
        of_sets = {name: self._directions(one).items() for name, one in evaluator.sets.items()}
        return {f"{name}/{metric}": higher for name, items in of_sets.items() for metric, higher in items}

    def _directions(self, evaluator: Evaluator) -> dict[str, bool | None]:
        is_own = not isinstance(getattr(evaluator, "whole", evaluator), MeanLoss)
        return {} if is_own else {"loss": False, **self.metrics.directions}

    def _single(self, data: Any, sharded: ShardedTraining | None, metrics: MetricSet, comes_again: bool) -> Evaluator:
        setup = self.setup
        data = limited_evaluation(data, setup.settings)
        settings = {
            "sliceable": setup.settings.sliceable, "metrics": metrics, "notes": setup.notes,
            "tell": partial(setup.journal.warn, kind="memory"),
        }  # fmt: skip
        if sharded is not None:
            return sharded.evaluator(data, **settings)
        evaluator = as_evaluator(data, setup.compute, setup.precision, ranks=setup.ranks, **settings)
        if isinstance(evaluator, MeanLoss) and self.choice.may_capture:
            tell, required = partial(setup.journal.say, kind="capture"), setup.settings.capture == "require"
            evaluator.captured = CapturedLoss(
                partial(evaluator.observed, setup.model), setup.model, setup.loss_fn, setup.precision, tell, required,
                0.0 if comes_again else ATTEMPT_SECONDS,
            )  # fmt: skip
        return evaluator


def _in_words(monitor: Monitor) -> str:
    return f"{monitor.name!r} ({'higher' if monitor.higher_is_better else 'lower'} is better)"
