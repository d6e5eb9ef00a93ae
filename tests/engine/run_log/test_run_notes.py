import torch
from torch import nn

import brim
from brim.engine.run_log.run_notes import RunNotes
from brim.record import Journal, RunFolder
from brim.record.report.memory_forecast import memory_forecast, plan_of
from brim.record.run_record import read_run


def test_a_run_that_has_only_begun_has_its_forecast_and_its_plan_in_its_record(tmp_path):
    """Which its page shows, whether the run ends well or not: plan.json is written at the end."""
    planned = brim.plan(
        lambda: nn.Linear(64, 64), lambda n: ((torch.empty(n, 64),), {}), batch_size=32, card="NVIDIA H200"
    )
    folder, journal = RunFolder.create(tmp_path / "run"), Journal(quiet=True)
    journal.attach(folder)
    RunNotes(journal).forecast(planned, pool=0)
    journal.close()
    run = read_run(folder)
    assert run.plan == {}
    assert memory_forecast(run)["reserved"] == planned.forecast.reserved
    assert plan_of(run)["reasons"] == list(planned.reasons)
    assert plan_of(run)["settings"]["micro_batch"] == str(planned.micro_batch)
