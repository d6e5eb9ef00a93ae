"""What a workload tells: before a run, and after it."""

from dataclasses import dataclass

from brim.engine import Result, Trainer


@dataclass(frozen=True)
class Outcome:
    """A finished run, with the metrics of its model (and of baselines, where there are any) as a table."""

    result: Result
    table: dict[str, dict[str, float]]
    columns: tuple[str, ...]  # the metrics that are shown, in this order
    judged_by: str = "test"  # or evaluation, where there was no test data

    @classmethod
    def of(cls, trainer: Trainer, result: Result) -> "Outcome":
        """That of a model alone, all of its metrics in the table."""
        table = {type(trainer.model).__name__: result.metrics} if result.metrics else {}
        return cls(result, table, tuple(result.metrics), judged_by(trainer))


def judged_by(trainer: Trainer) -> str:
    """Which data the metrics of a result are of."""
    return "evaluation" if trainer.test_data is None else "test"


@dataclass(frozen=True)
class JobFacts:
    """What is known of a training before it runs."""

    batch_size: int  # samples, over all GPUs
    decided: frozenset[str] = frozenset()  # arguments of the trainer that code of the user's decides
