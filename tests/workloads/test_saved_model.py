import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import brim
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.weights import save_weights
from brim.engine.components.precision import Precision
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.errors import RunFolderError
from brim.record import RunFolder
from brim.workloads import load
from brim.workloads.recommender import BPR


@pytest.fixture
def folder(tmp_path):
    """A run folder that says it trained a small BPR, and holds no weights yet."""
    folder = RunFolder.create(tmp_path / "run")
    folder.write_json("model.json", {"model": "BPR", "arguments": {"n_users": 3, "n_items": 4, "embed_dim": 2}})
    return folder


def save_step(folder, step, model):
    save_weights(model, folder.checkpoints / f"step-{step:09d}" / "model.safetensors")
    return model


def assert_same_weights(model, other):
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_the_best_weights_are_loaded_even_where_later_ones_exist(folder):
    best = BPR(3, 4, 2)
    Checkpoints(folder.checkpoints, keep=1).save_best(best, 1)
    save_step(folder, 7, BPR(3, 4, 2))
    model = load(folder.path)
    assert isinstance(model, BPR)
    assert_same_weights(model, best)
    assert not model.training
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_without_a_best_the_last_weights_are_loaded(folder):
    last = save_step(folder, 100, BPR(3, 4, 2))
    save_step(folder, 99, BPR(3, 4, 2))
    assert_same_weights(load(str(folder.path)), last)


def test_a_model_of_ones_own_is_filled(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    trained, mine = save_step(folder, 1, nn.Linear(3, 2)), nn.Linear(3, 2)
    assert load(folder.path, model=mine) is mine
    assert_same_weights(mine, trained)
    assert not mine.training


def half_frozen():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 512), nn.Linear(512, 512), nn.Linear(512, 1))
    model[1].requires_grad_(False)  # 1 MiB
    return model


def test_each_of_the_best_is_loaded_whole_though_frozen_weights_are_elsewhere(tmp_path):
    x, held_out = torch.randn(8, 4), torch.randn(8, 4)
    seen = {}

    class Keep(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            seen[step] = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}

    brim.Trainer(
        half_frozen(), (x, x.sum(1, keepdim=True)), (held_out, held_out.sum(1, keepdim=True)), loss_fn=nn.MSELoss(),
        device="cpu", threads=1, epochs=4, keep_best=2, run_dir=tmp_path / "run", callbacks=[Keep()],
    ).fit()  # fmt: skip
    kept = sorted((tmp_path / "run" / "checkpoints").glob("best-*"))
    assert len(kept) == 2 and "1.weight" not in load_file(kept[0] / "model.safetensors")
    for path in kept:
        model = nn.Sequential(nn.Linear(4, 512), nn.Linear(512, 512), nn.Linear(512, 1))
        loaded = load(path, model).state_dict()
        assert not model.training
        assert all(torch.equal(loaded[name], tensor) for name, tensor in seen[int(path.name[5:])].items())


def test_a_checkpoint_of_brims_own_model_is_loaded_without_one(folder, monkeypatch):
    model = BPR(3, 4, 2)
    Checkpoints(folder.checkpoints, keep=1).save_best(model, 7, ranked=[7])
    assert_same_weights(load(folder.checkpoints / "best-000000007"), model)
    monkeypatch.chdir(folder.checkpoints)
    assert_same_weights(load("best-000000007"), model)


def test_a_damaged_checkpoint_is_not_handed_out_either(folder):
    Checkpoints(folder.checkpoints, keep=1).save_best(BPR(3, 4, 2), 7)
    (folder.checkpoints / "best" / "model.safetensors").write_bytes(b"")
    with pytest.raises(RunFolderError, match=r"best is damaged .* name another one"):
        load(folder.checkpoints / "best")


def test_a_run_of_a_model_of_ones_own_asks_for_it(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    save_step(folder, 1, nn.Linear(3, 2))
    with pytest.raises(RunFolderError, match="model="):
        load(folder.path)


def test_a_run_without_a_checkpoint_says_so(folder):
    with pytest.raises(RunFolderError, match="no checkpoint yet"):
        load(folder.path)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match="not a run folder"):
        load(tmp_path)


@pytest.mark.parametrize(
    "description",
    [
        '{"model": "os.system", "arguments": {"command": "true"}}',
        '{"model": "BPR", "arguments": {"wrong": 1}}',
        '{"model": "BPR"}',
        "[]",
        "not json",
    ],
)
def test_a_description_of_no_model_of_brims_is_refused(folder, description):
    folder.write("model.json", description)
    with pytest.raises(RunFolderError, match=r"model\.json does not describe a model"):
        load(folder.path)


def test_weights_of_another_shape_are_refused_with_their_file(folder):
    save_step(folder, 1, BPR(5, 4, 2))
    with pytest.raises(RunFolderError, match=r"step-000000001.*BPR"):
        load(folder.path)


@pytest.mark.gpu
def test_weights_trained_on_the_gpu_load_on_the_cpu(folder):
    trained = save_step(folder, 1, BPR(3, 4, 2).cuda())
    model = load(folder.path)
    assert_same_weights(model, trained.cpu())


@pytest.mark.parametrize("which", ["best", "newest"])
def test_damaged_weights_are_not_handed_out(tmp_path, which):
    torch.manual_seed(0)
    model = BPR(3, 4, 2)
    folder = RunFolder.create(tmp_path / "run")
    checkpoints = Checkpoints(folder.checkpoints, keep=2)
    if which == "best":
        checkpoints.save_best(model, 1)
        spoiled = folder.checkpoints / "best" / "model.safetensors"
    else:
        optimizer = torch.optim.SGD(model.parameters())
        for step in (1, 2):
            checkpoints.save(
                TrainingState(model, optimizer, None, Precision("32", torch.device("cpu")), Progress(step))
            )
        spoiled = checkpoints.all()[-1] / "model.safetensors"
    content = bytearray(spoiled.read_bytes())
    content[-1] ^= 1
    spoiled.write_bytes(bytes(content))
    if which == "best":
        with pytest.raises(RunFolderError, match=r"best weights .* are damaged"):
            load(tmp_path / "run", BPR(3, 4, 2))
    else:
        with pytest.warns(UserWarning, match="is damaged"):
            loaded = load(tmp_path / "run", BPR(3, 4, 2))
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))
