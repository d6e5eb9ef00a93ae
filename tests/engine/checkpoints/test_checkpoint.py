import json

import pytest
import torch
from torch import nn

from brim.engine.checkpoints.checkpoint import BEFORE_END, Checkpoints
from brim.engine.checkpoints.weights import load_weights, save_weights
from brim.engine.components.precision import Precision
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.errors import RunFolderError

CPU = torch.device("cpu")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Embedding(5, 3)
        self.outer = nn.Linear(3, 5, bias=False)
        self.outer.weight = self.inner.weight


def make_state(seed: int = 0) -> TrainingState:
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return TrainingState(model, optimizer, scheduler, Precision("32", CPU), Progress())


def train(state: TrainingState, steps: int) -> None:
    for _ in range(steps):
        state.optimizer.zero_grad()
        state.model(torch.randn(4, 3)).square().mean().backward()
        state.optimizer.step()
        state.scheduler.step()
        state.progress.step += 1


def test_a_state_continues_as_if_nothing_had_happened(tmp_path):
    checkpoints, state = Checkpoints(tmp_path, keep=3), make_state()
    train(state, 3)
    path = checkpoints.save(state)
    train(state, 5)

    resumed = make_state(seed=99)
    checkpoints.load(path, resumed)
    assert resumed.progress.step == 3
    train(resumed, 5)
    for name, tensor in state.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])
    assert state.scheduler.get_last_lr() == resumed.scheduler.get_last_lr()


def test_only_the_newest_few_are_kept_and_the_best(tmp_path):
    checkpoints, state = Checkpoints(tmp_path, keep=2), make_state()
    checkpoints.save_best(state.model, 1)
    for _ in range(4):
        train(state, 1)
        checkpoints.save(state)
    assert [path.name for path in checkpoints.all()] == ["step-000000003", "step-000000004"]
    assert (tmp_path / "best").is_dir()


def test_a_save_that_fails_leaves_nothing_half_written(tmp_path, monkeypatch):
    checkpoints, state = Checkpoints(tmp_path, keep=2), make_state()
    checkpoints.save(state)
    train(state, 1)

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(RunFolderError, match="no space"):
        checkpoints.save(state)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000"]


def test_saving_the_best_again_replaces_it(tmp_path):
    checkpoints, state = Checkpoints(tmp_path, keep=1), make_state()
    checkpoints.save_best(state.model, 1)
    train(state, 2)
    checkpoints.save_best(state.model, 1)
    other = nn.Linear(3, 2)
    assert checkpoints.load_best(other)
    assert torch.equal(other.weight, state.model.weight)


def test_the_evaluation_at_the_end_puts_aside_what_is_no_longer_among_the_best(tmp_path):
    checkpoints, model = Checkpoints(tmp_path, keep=2), make_state().model
    for step in (1, 2):
        checkpoints.save_best(model, step, ranked=(2, 1)[-step:])
    checkpoints.save_end(model, 3, ranked=(3, 2), is_best=True)
    folder = checkpoints.folder
    assert {path.name for path in folder.glob("best*")} == {"best", "best-000000002", "best-000000003"}
    assert {path.name for path in (folder / BEFORE_END).iterdir()} == {"best", "best-000000001"}


def test_without_a_best_there_is_none_to_load(tmp_path):
    assert not Checkpoints(tmp_path, keep=1).load_best(nn.Linear(1, 1))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_weights_travel_tied_ones_included(tmp_path, suffix):
    model, path = Tied(), tmp_path / f"model{suffix}"
    save_weights(model, path)
    other = Tied()
    load_weights(other, path)
    assert torch.equal(other.inner.weight, model.inner.weight)
    assert other.outer.weight is other.inner.weight


def test_a_pth_file_is_a_plain_state_dict(tmp_path):
    model = nn.Linear(2, 2)
    save_weights(model, tmp_path / "model.pth")
    state = torch.load(tmp_path / "model.pth", weights_only=True)
    assert list(state) == ["weight", "bias"]


def test_weights_of_another_model_are_refused_with_the_names(tmp_path):
    save_weights(nn.Linear(2, 2), tmp_path / "model.safetensors")
    with pytest.raises(RunFolderError, match="Sequential"):
        load_weights(nn.Sequential(nn.Linear(2, 2)), tmp_path / "model.safetensors")


@pytest.mark.parametrize("file", ["model.safetensors", "training.pt", "progress.json"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"[]"])
def test_a_damaged_file_is_named_not_a_crash(tmp_path, file, content):
    checkpoints, state = Checkpoints(tmp_path, keep=1), make_state()
    path = checkpoints.save(state)
    (path / file).write_bytes(content)
    with pytest.raises(RunFolderError, match="step-000000000"):
        checkpoints.load(path, make_state())


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (json.loads, ("1",))

    checkpoints, state = Checkpoints(tmp_path, keep=1), make_state()
    path = checkpoints.save(state)
    torch.save(Evil(), path / "training.pt")
    with pytest.raises(RunFolderError):
        checkpoints.load(path, make_state())


def test_damaged_newer_checkpoints_take_nobodys_place(tmp_path):
    checkpoints, state = Checkpoints(tmp_path, keep=1), make_state()
    state.progress.step = 16
    (checkpoints.save(state) / "training.pt").write_bytes(b"half")
    for step in (8, 12):
        state.progress.step = step
        checkpoints.save(state)
    told = []
    assert checkpoints.newest_whole(told.append).name == "step-000000012"
    assert len(told) == 1 and [path.name[-2:] for path in checkpoints.all()] == ["12", "16"]
