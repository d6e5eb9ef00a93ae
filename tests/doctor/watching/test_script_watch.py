"""The course of an observation: of a script's loop in this process, whose hooks are undone afterwards, and of steps."""

import gc
import json
import multiprocessing.process
import os
import subprocess
from dataclasses import asdict

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.utils.data import DataLoader, TensorDataset

from brim.doctor.observation import read_observation
from brim.doctor.stages import OBSERVE, TIMED, TRIAL, WARM_UP, Stage, at_pace
from brim.doctor.watching import script_watch
from brim.doctor.watching.script_watch import ScriptWatch


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The windows of a script that compiles in some of its steps, and how many steps it took to see them."""

    def watched(compiles, *stages, observes=False):
        graphs, done = [0], []
        monkeypatch.setattr(script_watch, "compiled_graphs", lambda: graphs[0])
        watch = ScriptWatch(tmp_path, stages, lambda *_: None, lambda: done.append(True), observes=observes)
        watch.enter(watch.stages[0])
        while not done:
            graphs[0] += watch.steps + 1 in compiles
            watch.on_step()
            assert watch.steps < 100
        return watch

    return watched


def test_steps_are_timed_after_those_that_compile(steps):
    warm_up, timed = Stage(WARM_UP, least=2, seconds=0.0, settled=3), Stage(TIMED, least=4, seconds=0.0)
    assert steps({}, warm_up, timed).steps == 3 + 4
    watch = steps({2, 5}, warm_up, timed)
    assert watch.steps == 8 + 4 and watch.windows[TIMED].steps == 4


def test_timed_steps_begin_anew_where_something_is_compiled_but_not_for_ever(steps):
    warm_up, timed = Stage(WARM_UP, least=1, seconds=0.0), Stage(TIMED, least=4, seconds=0.0, restarts=2)
    watch = steps({4}, warm_up, timed)
    assert watch.steps == 4 + 4 and watch.windows[TIMED].steps == 4
    assert steps(set(range(100)), warm_up, timed).steps < 20


def test_an_observation_keeps_what_is_compiled_in_its_timed_steps(steps):
    warm_up, timed, *_ = at_pace(OBSERVE, 0.0)
    watch = steps({8}, warm_up, timed, observes=True)
    assert watch.windows[TIMED].steps == 10 and watch.observation("finished").host.recompiles == 1


def test_calls_of_modules_are_not_hooked_while_a_trial_may_compile_them(tmp_path, monkeypatch):
    for observes, hooked in ((False, 0), (True, 1)):
        before = len(modules._global_forward_pre_hooks)
        stages = (Stage(WARM_UP, least=5, seconds=0.0),)
        watch = ScriptWatch(tmp_path, stages, lambda *_: None, lambda: None, observes=observes)
        watch.enter(watch.stages[0])
        assert len(modules._global_forward_pre_hooks) == before + 1
        watch.on_step()
        assert len(modules._global_forward_pre_hooks) == before + hooked
        watch.calls.remove()


class Enough(BaseException):
    """In the place of the end of the process."""


@pytest.fixture
def watching(unhooked, tmp_path, monkeypatch):
    """``watch = watching(stages)``: what a script's process has, but that it is not ended."""
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", multiprocessing.process.BaseProcess.start)
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    monkeypatch.setattr(os, "fork", os.fork)
    monkeypatch.setattr(script_watch, "compiled_graphs", lambda: 0)  # other tests of this process have compiled
    before, threads, made = list(gc.callbacks), torch.get_num_threads(), []
    torch.set_num_threads(1)  # with several, their number is tried out, for seconds each

    def watch(stages):
        def enough():
            raise Enough

        told = []
        made.append(
            ScriptWatch(tmp_path, at_pace(stages, 0.0), lambda *said: told.append(said), enough, (str(tmp_path),))
        )
        made[-1].told = told
        made[-1].install()
        return made[-1]

    yield watch
    for one in made:
        one.copies.remove()
        one.calls.remove()
    gc.callbacks[:] = before
    torch.set_num_threads(threads)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def batches():
    """More than are watched: windows are cut to whole epochs where some end."""
    x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)


def train(model, data, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    done = 0
    while True:
        for x, y in data:
            if done == steps:
                return
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            done += 1
            optimizer.step()


def test_a_loop_is_watched_stage_by_stage_until_enough_was_seen(watching):
    watch = watching(OBSERVE)
    with pytest.raises(Enough):
        train(net(), batches(), 10_000)
    stages = list(dict.fromkeys(stage for stage, _ in watch.told))
    assert stages[:5] == ["warm-up", "timed", "sampled", "profiled", "ceiling"]
    assert [steps for _, steps in watch.told] == sorted(steps for _, steps in watch.told)
    seen = watch.observation("measured")
    assert (seen.ended, seen.steps, seen.notes) == ("measured", watch.steps, ())
    assert seen.timed.steps == 10 and seen.timed.samples == 160 and seen.sampled.steps == 10
    assert seen.ceiling.steps == 13 - script_watch.SETTLING and seen.profile.steps >= 4
    (loader,) = seen.loaders
    assert (loader.trains, loader.batch_size, loader.num_workers, loader.length) == (True, 16, 0, 2000)
    (optimizer,) = seen.optimizers
    assert optimizer.name == "SGD" and seen.host.device == "cpu" and not seen.host.compiled


def test_steps_that_are_only_timed_are_those_of_the_script(watching):
    watch, plain = watching(TRIAL), net()
    model = net()
    with pytest.raises(Enough):
        train(model, batches(), 10_000)
    assert watch.steps == 16  # 5 and 10 of its stages, from one step to the next
    train(plain, batches(), watch.steps)
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)
    seen = watch.observation("measured")
    assert seen.profile is None and seen.ceiling is None and len(seen.losses) > 0


def test_without_a_loader_the_models_input_counts_the_samples_and_nothing_is_replayed(watching):
    watch = watching(OBSERVE)
    with pytest.raises(Enough):
        train(net(), [(torch.ones(8, 4), torch.ones(8, 1))], 10_000)
    seen = watch.observation("measured")
    assert seen.loaders == () and seen.ceiling is None and "ceiling" not in dict(watch.told)
    assert (seen.timed.steps, seen.timed.samples) == (10, 80)


def test_a_script_that_ends_early_has_seen_what_it_has(watching):
    watch = watching(OBSERVE)
    train(net(), batches(), 9)
    seen = watch.observation("failed", "ValueError: x")
    assert (seen.ended, seen.error, seen.steps) == ("failed", "ValueError: x", 9)
    assert seen.timed.steps == 3 and seen.sampled is None  # after the six of warming up


def test_the_first_steps_are_told_one_by_one(watching):
    watch = watching(OBSERVE)
    train(net(), batches(), 4)
    assert [steps for _, steps in watch.told] == [0, 1, 2, 3, 4]


def test_a_fault_of_the_doctors_ends_the_watch_and_not_the_script(watching, monkeypatch):
    watch = watching(OBSERVE)
    monkeypatch.setattr(watch, "is_over", lambda stage, seconds: 1 / 0)
    with pytest.raises(Enough):
        train(net(), batches(), 5)
    assert watch.notes == ["measuring broke off in stage warm-up: ZeroDivisionError: division by zero"]
    train(net(), batches(), 5)
    assert watch.steps == 1  # and nothing more is watched


def test_what_was_seen_can_be_written_and_read(watching):
    watch = watching(TRIAL)
    train(net(), batches(), 8)
    seen = watch.observation("finished")
    assert read_observation(json.dumps(asdict(seen))) == seen


def test_steps_in_a_forked_process_are_not_watched(watching):
    watch = watching(OBSERVE)
    watch.leave_process()
    train(net(), batches(), 20)
    assert watch.steps == 0 and watch.is_here
    watch.process += 1
    assert not watch.is_here


def test_a_script_that_profiles_itself_is_not_profiled_by_another(watching):
    watch = watching(OBSERVE)
    with pytest.raises(Enough), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        train(net(), batches(), 10_000)
    seen = watch.observation("measured")
    assert seen.profile is None and seen.ceiling is not None and "profiled" not in dict(watch.told)
    assert "the script's own profiler runs" in seen.notes[0]


def test_autograd_that_looks_for_anomalies_is_seen(watching):
    watch = watching(OBSERVE)
    with pytest.raises(Enough), torch.autograd.set_detect_anomaly(True):
        train(net(), batches(), 10_000)
    seen = watch.observation("measured")
    assert seen.host.finds_anomalies and [trial.name for trial in seen.trials] == ["no-anomaly-detection"]
