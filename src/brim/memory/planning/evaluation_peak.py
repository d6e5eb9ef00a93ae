"""What an evaluation takes, where that is more than a step of training takes."""

from brim.memory.forecast import Forecast, Setting, forecast_trace, trace_on
from brim.memory.planning.window import StepBatches, batch_tensors, with_window
from brim.memory.trace.steps import Job


def larger_evaluation(
    job: Job, setting: Setting, batches: StepBatches, steps: Forecast, micro_batches: int
) -> Forecast | None:
    """The forecast with the evaluation of ``job`` after steps of so many micro-batches, if it takes more than they do.

    Only one of more samples than go through the model in training can, for it keeps no activations.
    """
    if job.evaluation is None or job.evaluation <= steps.batch_size:
        return None
    recorded = trace_on(batches.passes_of(job), steps.batch_size, setting)
    window = batch_tensors(recorded) * micro_batches * (batches.accumulation + batches.prefetched)
    found = forecast_trace(with_window(recorded, window), job, steps.batch_size, setting)
    return found if found.phase == "evaluation" and found.allocated > steps.allocated else None
