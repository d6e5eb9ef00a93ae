"""Capture trap 7: a step is called captured, and nothing is ever replayed."""

import json

import pytest
import torch

import brim
from brim.errors import ConfigError


@pytest.mark.gpu
def test_the_replays_that_are_reported_were_made(twins, monkeypatch):
    made = []
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph):
        made.append(1)
        return replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    captured = twins.train(twins.mlp, twins.rows(), "require", epochs=10)
    assert captured.is_accounted_for
    assert captured.report.replays <= len(made)  # some more prove and time it
    assert captured.report.replays > 0.8 * len(captured.losses)


@pytest.mark.gpu
def test_a_replayed_step_costs_the_host_one_launch_and_few_operators(twins):
    """Seen from outside: operators that Python dispatches in a stretch of steps."""
    counts = {}
    for how in ("off", "require"):

        class Count(brim.Callback):
            def on_step_end(self, trainer, step, loss, how=how):
                if step == 150:
                    self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
                    self.profile.start()
                if step == 190:
                    self.profile.stop()
                    events = self.profile.key_averages()
                    counts[how] = sum(event.count for event in events if event.key.startswith("aten::"))

        twins.train(twins.mlp, twins.rows(), how, epochs=10, callbacks=lambda: [Count()])
    assert counts["require"] < 0.5 * counts["off"]


@pytest.mark.gpu
def test_the_run_says_in_one_line_whether_it_is_captured(twins):
    captured = twins.train(twins.mlp, twins.rows(), "require")
    events = [json.loads(line) for line in (captured.folder / "events.jsonl").read_text().splitlines()]
    told = [event["line"] for event in events if event["kind"] == "capture"]
    assert len(told) == 1 and "captured" in told[0]


def test_on_the_cpu_it_is_not_required_in_vain(tmp_path):
    data = (torch.randn(64, 4), torch.randn(64, 1))
    with pytest.raises(ConfigError, match="capture"):
        brim.Trainer(
            torch.nn.Linear(4, 1), data, loss_fn=torch.nn.MSELoss(), device="cpu", capture="require",
            run_dir=tmp_path / "run",
        ).fit()  # fmt: skip
