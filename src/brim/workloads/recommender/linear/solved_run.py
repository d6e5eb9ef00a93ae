"""A run of a model that is solved: no steps, but a run folder as any other has, with its model and its report."""

import time
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from brim.engine import Result
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.hardware import inventory
from brim.record import RunFolder, write_report
from brim.record.report.recommendations import RECOMMENDATIONS
from brim.record.run_folder import CONFIG, MACHINE, MODEL, RESULT
from brim.workloads.recommender.dataset import RecommenderDataset
from brim.workloads.recommender.linear.linear_recommender import LinearRecommender
from brim.workloads.recommender.loaders import EvalDataLoader
from brim.workloads.recommender.serving.examples import example_people

Table = dict[str, dict[str, float]]


def keep_solved(
    model: LinearRecommender,
    test_data: EvalDataLoader,
    dataset: RecommenderDataset,
    rivals: Mapping[str, nn.Module],
    name: str,
    config: str,
    run_dir: str | Path | None,
    began: float,
) -> tuple[Result, Table]:
    """Rank the test data, beside ``rivals``, and leave a run folder that ``brim.load`` and ``brim recommend`` read.

    Args:
        model: solved.
        test_data: what it is judged by.
        dataset: that it was made of.
        rivals: baselines, by name.
        name: of the model's row in the table.
        config: as YAML.
        run_dir: the folder; None for a new one under ``runs/``.
        began: ``time.perf_counter()`` before the model was solved.
    """
    table = {name: test_data.evaluate(model.eval())}
    seconds, device = time.perf_counter() - began, model.weights.device
    table |= {rival: test_data.evaluate(baseline.to(device)) for rival, baseline in rivals.items()}
    folder = RunFolder.create(run_dir, name=type(model).__name__)  # a ranking that failed has left none
    result = Result(folder.path, 0, 0, seconds, "done", table[name])
    folder.write(CONFIG, config)
    folder.write_json(MACHINE, inventory().facts())
    folder.write_json(MODEL, {"model": type(model).__name__, "arguments": model.arguments})
    Checkpoints(folder.checkpoints, keep=1).save_final(model, step=0)
    folder.write_json(RESULT, {**result.as_json(), "metrics_of": "test", "table": table})
    people = [person.as_json() for person in example_people(model, dataset)]
    folder.write_json(RECOMMENDATIONS, {"people": people})
    write_report(folder)
    return result, table
