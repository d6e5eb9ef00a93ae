"""Checkpoints in the background: the moment that was asked for, none torn, none silently lost."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from helpers.clock import Clock
from torch import nn

from brim.engine.checkpoints import saver as saver_module
from brim.engine.checkpoints.checkpoint import Checkpoints, Moment
from brim.engine.checkpoints.frozen_weights import PartedWeights
from brim.engine.checkpoints.saver import Saver, has_room_for_copy
from brim.engine.checkpoints.whole_folder import damage
from brim.engine.components.precision import Precision
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState


def make_state(step: int = 0) -> TrainingState:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return TrainingState(model, optimizer, None, Precision("32", torch.device("cpu")), Progress(step=step))


class Said(list):
    def __call__(self, sentence: str) -> None:
        self.append(sentence)


@pytest.fixture
def parts(tmp_path):
    said, warned = Said(), Said()
    checkpoints = Checkpoints(tmp_path, keep=3)
    return Saver(checkpoints, said, warned), checkpoints, said, warned


def hold_writing(checkpoints, monkeypatch):
    """Let writing wait for an event that the test sets."""
    go_on, write = threading.Event(), checkpoints.write

    def held(moment):
        go_on.wait(600)  # what a failed test leaves behind ends
        return write(moment)

    monkeypatch.setattr(checkpoints, "write", held)
    return go_on


def set_free_memory(monkeypatch, free):
    monkeypatch.setattr(saver_module, "LITTLE", 0)
    monkeypatch.setattr(saver_module, "available_memory", lambda: free)


def test_the_checkpoint_is_of_the_moment_of_the_call(parts, monkeypatch):
    saver, checkpoints, _, _ = parts
    go_on, state = hold_writing(checkpoints, monkeypatch), make_state(step=5)
    weights, moments = state.model.weight.detach().clone(), state.optimizer.state[state.model.weight]["exp_avg"].clone()
    assert saver.save(state)
    with torch.no_grad():
        state.model.weight.fill_(99)  # training goes on meanwhile
        state.optimizer.state[state.model.weight]["exp_avg"].fill_(99)
    state.progress.step, state.progress.metrics["x"] = 6, 1.0
    go_on.set()
    saver.wait()
    loaded = make_state()
    checkpoints.load(checkpoints.all()[-1], loaded)
    assert torch.equal(loaded.model.weight, weights)
    assert torch.equal(loaded.optimizer.state[loaded.model.weight]["exp_avg"], moments)
    assert loaded.progress.step == 5 and loaded.progress.metrics == {}


def test_a_save_still_running_makes_the_next_be_left_out_with_one_line(parts, monkeypatch):
    saver, checkpoints, said, warned = parts
    monkeypatch.setattr(saver_module, "PATIENCE_S", 0.0)
    go_on = hold_writing(checkpoints, monkeypatch)
    assert saver.save(make_state(step=1))
    assert not saver.save(make_state(step=2))
    go_on.set()
    saver.wait()
    assert saver.save(make_state(step=3))
    saver.wait()
    assert [path.name for path in checkpoints.all()] == ["step-000000001", "step-000000003"]
    assert said == ["the checkpoint of step 2 is left out: that of step 1 is still being written"] and not warned


def test_small_saves_are_waited_for(parts):
    saver, checkpoints, said, _ = parts
    for step in range(1, 9):
        assert saver.save(make_state(step=step))
    saver.wait()
    assert [path.name[-1] for path in checkpoints.all()] == ["6", "7", "8"] and not said
    assert all(damage(path) is None for path in checkpoints.all())


def test_the_best_is_never_left_out(parts, monkeypatch):
    saver, checkpoints, _, _ = parts
    monkeypatch.setattr(saver_module, "PATIENCE_S", 0.0)
    go_on, state = hold_writing(checkpoints, monkeypatch), make_state(step=1)
    saver.save(state)
    threading.Timer(0.05, go_on.set).start()
    saver.save_best(state.model, 1)
    saver.wait()
    loaded = nn.Linear(2, 2)
    assert checkpoints.load_best(loaded)
    assert torch.equal(loaded.weight, state.model.weight)


@pytest.mark.parametrize("room", [None, 0])
def test_a_failing_save_is_one_warning_and_the_next_is_tried(parts, monkeypatch, room):
    saver, checkpoints, _, warned = parts
    set_free_memory(monkeypatch, room)
    monkeypatch.setattr(checkpoints, "folder", checkpoints.folder / "file" / "below")
    (checkpoints.folder.parent).write_text("a file where a folder is needed")
    saver.save(make_state(step=1))
    saver.wait()
    assert len(warned) == 1 and "training goes on" in warned[0]
    checkpoints.folder.parent.unlink()
    saver.save(make_state(step=2))
    saver.wait()
    assert [path.name for path in checkpoints.all()] == ["step-000000002"] and len(warned) == 1


def test_without_room_for_a_copy_training_waits_for_the_disk(parts, monkeypatch):
    saver, checkpoints, _, _ = parts
    set_free_memory(monkeypatch, 10)
    monkeypatch.setattr(PartedWeights, "on_host", lambda weights: pytest.fail("a copy was made"))
    state = make_state(step=1)
    assert saver.save(state)
    saver.save_best(state.model, 1)
    assert [path.name for path in checkpoints.all()] == ["step-000000001"]
    assert (checkpoints.folder / "best").exists()


def test_a_copy_is_made_where_twice_as_much_is_free(monkeypatch):
    moment = Moment(PartedWeights(nn.Linear(2, 2).state_dict()), {"state": torch.zeros(10)}, {})
    for free, has_room in ((2 * 4 * (6 + 10), True), (2 * 4 * (6 + 10) - 1, False), (None, True)):
        set_free_memory(monkeypatch, free)
        assert has_room_for_copy(moment) is has_room


def test_a_thread_does_not_outlive_waiting(parts):
    saver, _, _, _ = parts
    saver.save(make_state(step=1))
    saver.wait()
    assert not any(thread.name.startswith("brim-checkpoint") for thread in threading.enumerate())


def test_whatever_goes_wrong_in_the_thread_is_said(parts, monkeypatch):
    saver, checkpoints, _, warned = parts

    def fails(moment):
        raise TypeError("cannot pickle this")

    monkeypatch.setattr(checkpoints, "write", fails)
    saver.save(make_state(step=1))
    saver.wait()
    assert len(warned) == 1 and "TypeError: cannot pickle this" in warned[0]


def test_numbers_of_numpys_are_written_as_pythons(parts):
    saver, checkpoints, _, _ = parts
    state = make_state(step=1)
    state.optimizer.param_groups[0]["lr"] = np.float64(0.25)
    saver.save(state)
    saver.wait()
    loaded = make_state()
    checkpoints.load(checkpoints.all()[-1], loaded)
    assert loaded.optimizer.param_groups[0]["lr"] == 0.25


def test_best_weights_that_take_long_leave_no_checkpoint_out(parts, monkeypatch):
    saver, checkpoints, said, warned = parts
    clock = Clock()
    monkeypatch.setattr(saver_module, "time", clock)
    monkeypatch.setattr(saver_module, "PATIENCE_S", 600.0)
    slow = checkpoints.save_best
    monkeypatch.setattr(checkpoints, "save_best", lambda *best: (clock.sleep(1000), time.sleep(0.1), slow(*best)))
    saver.save_best(make_state().model, 1)
    for step in (1, 2, 3):
        assert saver.save(make_state(step))
    saver.wait()
    assert [path.name[-1] for path in checkpoints.all()] == ["1", "2", "3"] and not said and not warned


def test_a_checkpoint_goes_on_beside_training_while_the_best_weights_before_it_are_written(parts, monkeypatch):
    saver, checkpoints, _, _ = parts
    go_on, written, save_best, write = threading.Event(), [], checkpoints.save_best, checkpoints.write

    def held(*best):
        go_on.wait(600)
        save_best(*best)
        written.append("best")

    monkeypatch.setattr(checkpoints, "save_best", held)
    monkeypatch.setattr(checkpoints, "write", lambda moment: (write(moment), written.append("checkpoint")))
    state = make_state(step=1)
    saver.save_best(state.model, 1)
    assert saver.save(state)  # it does not wait for the event
    go_on.set()
    saver.wait()
    assert written == ["best", "checkpoint"]
    assert all(damage(checkpoints.folder / name) is None for name in ("best", "step-000000001"))


def test_of_best_weights_one_copy_waits_at_most(parts, monkeypatch):
    saver, checkpoints, _, _ = parts
    copies, save_best = [], checkpoints.save_best

    def counted(weights, *rest):
        assert all(copy() is None for copy in copies)  # that of the best before
        copies.append(weakref.ref(weights))
        save_best(weights, *rest)

    monkeypatch.setattr(checkpoints, "save_best", counted)
    for step in range(4):
        saver.save_best(make_state(step).model, step)
    saver.wait()
    gc.collect()
    assert len(copies) == 4 and all(copy() is None for copy in copies)


def test_frozen_weights_are_stored_once_though_best_and_checkpoint_follow_at_once(parts, monkeypatch):
    saver, checkpoints, _, _ = parts
    state = make_state(step=1)
    state.model.frozen = nn.Linear(600, 600).requires_grad_(False)
    saver.begin(state)
    stored, store = [], checkpoints.frozen.files.store
    monkeypatch.setattr(checkpoints.frozen.files, "store", lambda tensors: (stored.append(tensors), store(tensors))[1])
    saver.save_best(state.model, 1)
    saver.save(state)
    saver.wait()
    assert len(stored) == 1
    loaded = make_state()
    loaded.model.frozen = nn.Linear(600, 600).requires_grad_(False)
    checkpoints.load(checkpoints.all()[-1], loaded)
    assert torch.equal(loaded.model.frozen.weight, state.model.frozen.weight)


def test_best_weights_of_which_no_copy_can_be_made_are_written_at_once(parts, monkeypatch):
    saver, checkpoints, _, warned = parts

    def no_memory(weights):
        raise MemoryError

    monkeypatch.setattr(PartedWeights, "on_host", no_memory)
    saver.save_best(make_state().model, 5)
    assert damage(checkpoints.folder / "best") is None and checkpoints.has_best and not warned


def test_a_run_in_a_thread_goes_on_where_the_main_thread_has_ended(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import threading, torch, brim\n"
        "class Waits(brim.Callback):\n"
        "    def on_fit_start(self, trainer):\n"
        "        threading.main_thread().join()\n"
        "data = brim.Loader((torch.randn(8, 3), torch.randn(8, 1)), batch_size=4)\n"
        "trainer = brim.Trainer(torch.nn.Linear(3, 1), data, loss_fn=torch.nn.MSELoss(), device='cpu', threads=1,\n"
        "                       epochs=2, loggers=False, run_dir='run', callbacks=[Waits()])\n"
        "threading.Thread(target=trainer.fit).start()\n"
    )
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "done: 4 steps" in ended.stderr and "Error" not in ended.stderr
    assert list((tmp_path / "run" / "checkpoints").iterdir())
