"""Weights that do not move are on disk once; what a checkpoint gives back is what the model had, to the bit."""

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import brim
from brim.engine.checkpoints import shared_files
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.export import export_weights
from brim.engine.checkpoints.frozen_weights import SMALL
from brim.engine.checkpoints.saver import Saver
from brim.engine.checkpoints.shared_files import checkpoint_damage, references_in
from brim.engine.checkpoints.weights import load_weights, read_weights
from brim.engine.components.precision import Precision
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.errors import RunFolderError
from brim.workloads.saved_model import load

WIDTH = 512
BASE = 2 * WIDTH * WIDTH * 4  # bytes of the encoder's matrices
X = torch.randn(24, WIDTH, generator=torch.Generator().manual_seed(3))
Y = X[:, :1] * 0.1


class Model(nn.Module):
    """A frozen encoder that is most of it, and a head."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.encoder.requires_grad_(False)
        torch.manual_seed(7)  # heads are alike, whatever the encoder is
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


def make_trainer(folder, model=None, *callbacks, **settings):
    fixed = {"epochs": 3, "keep": 10, "optimizer": "AdamW", "lr": 0.01, "device": "cpu", "threads": 1, "log_every": 1}
    data = brim.Loader((X, Y), 8)
    return brim.Trainer(
        model if model is not None else Model(), data, loss_fn=nn.MSELoss(), run_dir=folder, callbacks=callbacks,
        **{**fixed, **settings},
    )  # fmt: skip


def state_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].numpy().tobytes() == other[name].numpy().tobytes()
        for name in one
    )


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def shared(folder):
    return sorted((folder / "checkpoints" / "frozen").glob("*"))


def steps(folder):
    return Checkpoints(folder / "checkpoints", 3).all()


class Recorder(brim.Callback):
    """Keeps the weights of each checkpoint; ``change`` does something to the model at the end of epoch 2."""

    def __init__(self, change=None, every_epoch=False):
        self.change, self.every_epoch = change, every_epoch
        self.states = {}

    def on_epoch_end(self, trainer, epoch):
        if self.change is not None and (self.every_epoch or epoch == 2):
            self.change(trainer.model)

    def on_save(self, trainer, step):
        self.states[f"step-{step:09d}"] = state_of(trainer.model)


def check_all(folder, recorder, make=Model):
    """Every checkpoint gives the weights of its moment."""
    assert [path.name for path in steps(folder)] == sorted(recorder.states)
    for path in steps(folder):
        assert checkpoint_damage(path) is None
        found = make(seed=99)
        load_weights(found, path / "model.safetensors")
        assert same(state_of(found), recorder.states[path.name])


def test_a_frozen_encoder_is_written_once(tmp_path):
    recorder = Recorder()
    make_trainer(tmp_path / "run", None, recorder).fit()
    (file,) = shared(tmp_path / "run")
    assert file.stat().st_size > BASE
    assert load_file(file).keys() == {name for name in Model().state_dict() if name.startswith("encoder")}
    assert len(steps(tmp_path / "run")) == 3
    for path in steps(tmp_path / "run"):
        assert load_file(path / "model.safetensors").keys() == {"head.weight", "head.bias"}
        assert size_of(path) < BASE / 10
    check_all(tmp_path / "run", recorder)


def test_a_resumed_run_ends_with_the_same_bits_whatever_the_script_built(tmp_path):
    straight = Model()
    make_trainer(tmp_path / "straight", straight, epochs=5).fit()
    make_trainer(tmp_path / "run", epochs=2).fit()
    before = shared(tmp_path / "run")
    other = Model(seed=5)  # of which the run folder needs nothing
    make_trainer(tmp_path / "run", other, epochs=5).fit(resume=tmp_path / "run")
    assert same(state_of(other), state_of(straight))
    assert shared(tmp_path / "run") == before and len(before) == 1
    assert same(read_weights(steps(tmp_path / "run")[-1] / "model.safetensors"), state_of(straight))


def test_the_optimizer_may_hold_what_is_frozen(tmp_path):
    model, recorder = Model(), Recorder()
    make_trainer(tmp_path / "run", model, recorder, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01)).fit()
    assert len(shared(tmp_path / "run")) == 1 and size_of(steps(tmp_path / "run")[-1]) < BASE / 10
    check_all(tmp_path / "run", recorder)


def edit_data(model):
    model.encoder[0].weight.data[3, 5] += 1


def edit_under_no_grad(model):
    with torch.no_grad():
        model.encoder[0].weight[3, 5] += 1


def replace_data(model):
    model.encoder[0].weight.data = -model.encoder[0].weight.data


def replace_parameter(model):
    model.encoder[0].weight = nn.Parameter(model.encoder[0].weight.detach().flip(0), requires_grad=False)


def follow(model):
    for parameter in model.encoder.parameters():
        parameter.data.lerp_(torch.ones_like(parameter), 0.01)


def thaw(model):
    model.encoder[2].requires_grad_(True)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("change", [edit_data, edit_under_no_grad, replace_data, replace_parameter, follow, thaw])
@pytest.mark.parametrize("every_epoch", [False, True])
def test_what_moves_all_the_same_is_found_and_written(tmp_path, change, every_epoch):
    recorder = Recorder(change, every_epoch)
    make_trainer(tmp_path / "run", None, recorder, epochs=4).fit()
    check_all(tmp_path / "run", recorder)

    resumed, straight = Model(seed=9), Model()
    make_trainer(tmp_path / "run", resumed, Recorder(change, every_epoch), epochs=6).fit(resume="auto")
    make_trainer(tmp_path / "straight", straight, Recorder(change, every_epoch), epochs=6).fit()
    assert same(state_of(resumed), state_of(straight))


def test_a_teacher_that_follows_in_every_step_is_never_in_a_shared_file(tmp_path):
    class Follows(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            follow(trainer.model)

    recorder = Recorder()
    make_trainer(tmp_path / "run", None, Follows(), recorder).fit()
    assert shared(tmp_path / "run") == []
    check_all(tmp_path / "run", recorder)


def test_what_is_frozen_during_a_run_is_shared_from_the_second_save_on(tmp_path):
    class Freezes(brim.Callback):
        def on_epoch_start(self, trainer, epoch):
            trainer.model.encoder.requires_grad_(epoch < 3)

    model, recorder = Model(), Recorder()
    model.encoder.requires_grad_(True)
    make_trainer(tmp_path / "run", model, Freezes(), recorder, epochs=5).fit()
    sizes = [(path / "model.safetensors").stat().st_size for path in steps(tmp_path / "run")]
    assert [size > BASE for size in sizes] == [True, True, True, False, False]
    assert len(shared(tmp_path / "run")) == 1
    check_all(tmp_path / "run", recorder)


class WithBuffers(Model):
    """A large constant, a queue that moves, and norms in a frozen part that goes on counting."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.norm = nn.BatchNorm1d(WIDTH).requires_grad_(False)
        self.register_buffer("table", torch.randn(512, WIDTH))
        self.register_buffer("queue", torch.zeros(512, WIDTH))

    def forward(self, x):
        if self.training:
            self.queue.data[0] += 1
        return self.head(self.norm(self.encoder(x)) + self.table[0])


def test_buffers_are_shared_as_far_as_they_do_not_move(tmp_path):
    recorder = Recorder()
    make_trainer(tmp_path / "run", WithBuffers(), recorder).fit()
    (file,) = shared(tmp_path / "run")
    assert "table" in load_file(file) and not {"queue", "norm.running_mean"} & load_file(file).keys()
    assert {"queue", "norm.running_mean"} <= load_file(steps(tmp_path / "run")[-1] / "model.safetensors").keys()
    check_all(tmp_path / "run", recorder, WithBuffers)


class Tied(Model):
    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.encoder[2].weight = self.encoder[0].weight


def test_tied_frozen_weights_are_there_once_and_stay_tied(tmp_path):
    model, recorder = Tied(), Recorder()
    make_trainer(tmp_path / "run", model, recorder).fit()
    (file,) = shared(tmp_path / "run")
    assert file.stat().st_size < BASE * 0.6
    check_all(tmp_path / "run", recorder, Tied)
    found = load(tmp_path / "run", Tied(seed=3))
    assert found.encoder[0].weight.data_ptr() == found.encoder[2].weight.data_ptr()
    assert same(state_of(found), state_of(model))


def small(frozen: bool):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.BatchNorm1d(64), nn.Linear(64, 1))
    model[0].requires_grad_(not frozen)
    return model


@pytest.mark.parametrize("frozen", [False, True])
def test_checkpoints_of_small_models_are_files_that_need_no_other(tmp_path, frozen):
    model = small(frozen)
    assert model[0].weight.nbytes < SMALL
    make_trainer(tmp_path / "run", model).fit()
    assert not (tmp_path / "run" / "checkpoints" / "frozen").exists()
    for path in steps(tmp_path / "run"):
        assert references_in(path / "model.safetensors") == {}
        assert load_file(path / "model.safetensors").keys() == model.state_dict().keys()


def test_nothing_is_hashed_where_nothing_is_frozen(tmp_path, monkeypatch):
    def count(tensors):
        assert not tensors
        return {}

    monkeypatch.setattr("brim.engine.checkpoints.frozen_weights.fingerprints", count)
    model = Model()
    model.encoder.requires_grad_(True)
    make_trainer(tmp_path / "run", model, eval_data=brim.Loader((X, Y), 8)).fit()
    assert not (tmp_path / "run" / "checkpoints" / "frozen").exists()


@pytest.mark.parametrize("settings", [{}, {"restore_best": False}, {"keep_best": 2}, {"ema": 0.5}])
def test_what_fit_leaves_is_found_everywhere(tmp_path, settings):
    model = Model()
    held_out = brim.Loader((X, Y), 8)
    trainer = make_trainer(tmp_path / "run", model, eval_data=held_out, lr=0.5, epochs=4, **settings)
    trainer.fit(save_model=True, model_path=tmp_path / "model.safetensors")
    left = state_of(model)
    assert same(load_file(tmp_path / "model.safetensors"), left)
    assert same(state_of(load(tmp_path / "run", Model(seed=1))), left)
    target, _ = export_weights(tmp_path / "run", tmp_path / "exported.safetensors")
    assert same(load_file(target), left)
    assert references_in(target) == {}
    assert len(shared(tmp_path / "run")) == 1
    best = list((tmp_path / "run" / "checkpoints").glob("best*"))
    assert best and all(size_of(path) < BASE / 10 for path in best)

    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    assert same(state_of(load(tmp_path / "elsewhere", Model(seed=1))), left)


def test_a_moved_run_goes_on(tmp_path):
    straight = Model()
    make_trainer(tmp_path / "straight", straight, epochs=4).fit()
    make_trainer(tmp_path / "run", epochs=2).fit()
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    moved = Model(seed=4)
    make_trainer(None, moved, epochs=4).fit(resume=tmp_path / "elsewhere")
    assert same(state_of(moved), state_of(straight))


def test_a_checkpoint_alone_says_what_it_lacks(tmp_path):
    make_trainer(tmp_path / "run").fit()
    shutil.copytree(steps(tmp_path / "run")[-1], tmp_path / "alone" / "step")
    with pytest.raises(
        RunFolderError, match=r"frozen weights .* are missing; they belong to the checkpoints beside them"
    ):
        load_weights(Model(), tmp_path / "alone" / "step" / "model.safetensors")
    with pytest.raises(RunFolderError, match="are missing"):
        export_weights(tmp_path / "alone" / "step", tmp_path / "w.safetensors")


class Thaws(brim.Callback):
    """Lets all of the encoder be trained from an epoch on."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_start(self, trainer, epoch):
        trainer.model.encoder.requires_grad_(epoch >= self.epoch)


def test_shared_weights_stay_while_a_checkpoint_needs_them_and_go_with_the_last(tmp_path):
    make_trainer(tmp_path / "run", None, Thaws(3), epochs=3, keep=2).fit()
    assert len(shared(tmp_path / "run")) == 1  # of the checkpoint of epoch 2
    assert [bool(references_in(path / "model.safetensors")) for path in steps(tmp_path / "run")] == [True, False]
    assert all(checkpoint_damage(path) is None for path in steps(tmp_path / "run"))
    make_trainer(tmp_path / "run", None, Thaws(3), epochs=4, keep=2).fit(resume="auto")
    assert shared(tmp_path / "run") == []
    assert not (tmp_path / "run" / "checkpoints" / "frozen").exists()


def test_the_best_weights_keep_what_no_checkpoint_needs_any_more(tmp_path):
    model = Model()
    held_out = brim.Loader((X, model(X).detach()), 8)  # from which training leads away
    make_trainer(tmp_path / "run", model, Thaws(2), eval_data=held_out, lr=0.1, epochs=4, keep=1).fit()
    (newest,) = steps(tmp_path / "run")
    assert references_in(newest / "model.safetensors") == {}
    best = tmp_path / "run" / "checkpoints" / "best" / "model.safetensors"
    assert references_in(best) and len(shared(tmp_path / "run")) == 1
    assert same(read_weights(best), state_of(model))


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_save_is_of_the_moment_of_its_call_while_frozen_weights_move_on(tmp_path, monkeypatch, is_stored):
    model = Model()
    optimizer = torch.optim.AdamW(model.head.parameters())
    state = TrainingState(model, optimizer, None, Precision("32", torch.device("cpu")), Progress(step=1))
    checkpoints, go_on, warned = Checkpoints(tmp_path, keep=3), threading.Event(), []
    saver, write = Saver(checkpoints, warned.append, warned.append), checkpoints.write
    saver.begin(state)
    if is_stored:
        saver.save(state)
        saver.wait()
        state.progress.step = 2

    def held(moment):
        go_on.wait(600)  # what a failed test leaves behind ends
        return write(moment)

    monkeypatch.setattr(checkpoints, "write", held)
    expected = state_of(model)
    assert saver.save(state)
    for parameter in model.parameters():
        parameter.data.fill_(99)  # training goes on meanwhile
    go_on.set()
    saver.wait()
    newest = checkpoints.all()[-1] / "model.safetensors"
    assert references_in(newest).keys() == {name for name in expected if name.startswith("encoder")} and not warned
    assert same(read_weights(newest), expected)


def test_without_room_for_a_copy_it_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("brim.engine.checkpoints.saver.available_memory", lambda: 0)
    recorder = Recorder(edit_data)
    make_trainer(tmp_path / "run", None, recorder, eval_data=brim.Loader((X, Y), 8)).fit()
    check_all(tmp_path / "run", recorder)
    assert len(shared(tmp_path / "run")) == 1


@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_a_damaged_shared_file_is_named_in_one_sentence(tmp_path, harm):
    make_trainer(tmp_path / "run", eval_data=brim.Loader((X, Y), 8)).fit()
    (file,) = shared(tmp_path / "run")
    if harm == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
    with pytest.raises(
        RunFolderError,
        match=rf"all checkpoints in .* are damaged \(its frozen weights {file} are .*, and this model does not",
    ):
        make_trainer(tmp_path / "run", Model(seed=5), epochs=4).fit(resume="auto")
    with pytest.raises(RunFolderError, match=rf"best weights in .* are damaged \(its frozen weights {file} are"):
        load(tmp_path / "run", Model())
    with pytest.raises(RunFolderError, match=rf"is damaged \(its frozen weights {file} are"):
        export_weights(tmp_path / "run")


@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_frozen_weights_that_are_lost_are_those_of_the_script_if_it_built_the_same(tmp_path, harm, capsys):
    straight, resumed = Model(), Model()
    make_trainer(tmp_path / "straight", straight, epochs=4).fit()
    make_trainer(tmp_path / "run", epochs=2).fit()
    (file,) = shared(tmp_path / "run")
    content = bytearray(file.read_bytes())
    if harm == "missing":
        shutil.rmtree(file.parent)
    else:
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    capsys.readouterr()
    make_trainer(tmp_path / "run", resumed, epochs=4).fit(resume="auto")
    told = " ".join(capsys.readouterr().err.split())
    assert "this model has the same, and they are written again" in told and "is damaged" not in told
    assert file.read_bytes() == content and same(state_of(resumed), state_of(straight))


def test_one_number_that_is_another_is_another_base(tmp_path):
    make_trainer(tmp_path / "run").fit()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "frozen")
    model = Model()
    model.encoder[2].weight.data[5, 5] *= 1.001
    with pytest.raises(RunFolderError, match=r"are missing; .*, and this model does not have the same"):
        make_trainer(tmp_path / "run", model, epochs=4).fit(resume="auto")
    assert not (tmp_path / "run" / "checkpoints" / "frozen").exists()


def test_a_full_disk_is_a_warning_and_the_next_save_writes_it(tmp_path, monkeypatch, capsys):
    real, tries = shared_files.save_file, []

    def full(*arguments):
        tries.append(arguments)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(shared_files, "save_file", full)
    recorder = Recorder()
    make_trainer(tmp_path / "run", None, recorder).fit()
    assert "cannot write frozen weights" in capsys.readouterr().err
    recorder.states.pop(min(recorder.states))
    check_all(tmp_path / "run", recorder)
    assert len(shared(tmp_path / "run")) == 1


def test_a_shared_file_that_somebody_written_again(tmp_path):
    class Removes(brim.Callback):
        def on_epoch_start(self, trainer, epoch):
            if epoch == 3:
                shared(tmp_path / "run")[0].unlink()

    make_trainer(tmp_path / "run", None, Removes(), epochs=3).fit()
    newest = steps(tmp_path / "run")[-1]
    assert checkpoint_damage(newest) is None and len(shared(tmp_path / "run")) == 1


def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path, monkeypatch):
    straight = Model()
    make_trainer(tmp_path / "straight", straight, epochs=4).fit()
    with monkeypatch.context() as patch:
        patch.setattr(Saver, "begin", lambda self, state: None)  # nothing is known not to move: whole checkpoints
        make_trainer(tmp_path / "run", epochs=2).fit()
    assert shared(tmp_path / "run") == [] and references_in(steps(tmp_path / "run")[-1] / "model.safetensors") == {}
    resumed = Model(seed=8)
    make_trainer(tmp_path / "run", resumed, epochs=4).fit(resume="auto")
    assert same(state_of(resumed), state_of(straight))
    assert [size_of(path) > BASE for path in steps(tmp_path / "run")] == [True, True, False, False]


@pytest.mark.parametrize("frozen", [True, False])
def test_averaged_weights_go_on_to_the_bit_and_frozen_ones_are_not_written_with_them(tmp_path, frozen):
    def make(seed=0):
        model = Model(seed)
        model.encoder[0].weight.data[0, 0] = -0.0  # whose average is 0.0
        return model.requires_grad_(True) if not frozen else model

    straight, resumed = make(), make(seed=6)
    trainers = [make_trainer(tmp_path / "straight", straight, epochs=4, ema=0.9)]
    trainers[0].fit()
    make_trainer(tmp_path / "run", make(), epochs=2, ema=0.9).fit()
    saved = torch.load(steps(tmp_path / "run")[-1] / "training.pt", weights_only=True)["ema"]
    assert saved["weights"].keys() | set(saved["as_model"]) == dict(resumed.named_parameters()).keys()
    if frozen:  # one of them has another zero than its average
        assert set(saved["as_model"]) == {"encoder.0.bias", "encoder.2.weight", "encoder.2.bias"}
    trainers.append(make_trainer(tmp_path / "run", resumed, epochs=4, ema=0.9))
    trainers[1].fit(resume="auto")
    assert same(state_of(resumed), state_of(straight))
    assert same(state_of(trainers[0].ema_model), state_of(trainers[1].ema_model))


def test_a_rewind_takes_the_frozen_weights_from_their_file(tmp_path):
    class Spoils(brim.Callback):
        def __init__(self):
            self.has_spoilt = False

        def on_step_end(self, trainer, step, loss):
            if step == 5 and not self.has_spoilt:
                self.has_spoilt = True
                trainer.model.encoder[0].weight.data.fill_(float("nan"))

    model, plain, spoils = Model(), Model(), Spoils()
    make_trainer(tmp_path / "run", model, spoils, on_nan="rewind").fit()
    make_trainer(tmp_path / "plain", plain).fit()
    assert spoils.has_spoilt and same(state_of(model), state_of(plain))


SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from brim.engine.checkpoints import shared_files, whole_folder
from test_frozen_weights import Model, make_trainer

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[3] == "shared":
    shared_files.checksum = killed       # written, without a name yet
else:
    whole_folder.WholeFolder._finish = killed  # the shared file has its name, the checkpoint none
make_trainer(Path(sys.argv[2])).fit()
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["shared", "checkpoint"])
def test_kill_9_between_the_files_leaves_what_the_next_start_uses(tmp_path, moment):
    arguments = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(tmp_path / "run"), moment]
    assert subprocess.run(arguments, capture_output=True, check=False).returncode == -signal.SIGKILL
    left = [path.name for path in shared(tmp_path / "run")]
    assert len(left) == 1 and (left == [".frozen.tmp"]) == (moment == "shared") and steps(tmp_path / "run") == []

    resumed, straight, recorder = Model(), Model(), Recorder()
    make_trainer(tmp_path / "run", resumed, recorder).fit(resume="auto")
    make_trainer(tmp_path / "straight", straight).fit()
    assert same(state_of(resumed), state_of(straight))
    check_all(tmp_path / "run", recorder)
    (file,) = shared(tmp_path / "run")
    assert moment == "shared" or [file.name] == left
