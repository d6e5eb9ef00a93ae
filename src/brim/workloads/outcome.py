"""What a workload tells: before a run, and after it."""

from dataclasses import dataclass

from brim.engine import Result


@dataclass(frozen=True)
class Outcome:
    """A finished run, with the metrics of its model (and of baselines, where there are any) as a table."""

    result: Result
    table: dict[str, dict[str, float]]
    columns: tuple[str, ...]  # the metrics that are shown, in this order
    judged_by: str = "test"  # or evaluation, where there was no test data


@dataclass(frozen=True)
class JobFacts:
    """What is known of a training before it runs."""

    batch_size: int  # samples, over all GPUs
    decided: frozenset[str] = frozenset()  # arguments of the trainer that code of the user's decides
