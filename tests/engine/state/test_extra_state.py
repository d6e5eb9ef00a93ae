"""What modules keep beside tensors is saved with them, wherever weights are."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import brim
from brim.engine.checkpoints.weights import holds_weights, load_weights, save_weights
from brim.engine.state.extra_state import KEY, check_extra_state
from brim.errors import ConfigError, RunFolderError

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X, Y = torch.randn(40, 4), torch.randn(40, 1)


class Keeping(nn.Linear):
    def __init__(self, kept):
        super().__init__(4, 1)
        self.kept = kept

    def get_extra_state(self):
        return self.kept

    def set_extra_state(self, state):
        self.kept = state


STATES = {
    "dict": {"n": 1, "name": "a", "share": 0.5, "none": None, "list": [1, (2, 3)]},
    "tensors": {"sum": torch.arange(3.0), "nested": [torch.ones(2, dtype=torch.int8)]},
    "tensor": torch.arange(5, dtype=torch.uint8),
    "number": 7,
    "nothing": None,
}


def alike(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    return one == other


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("kept", STATES.values(), ids=STATES)
def test_it_travels_with_the_weights(kept, suffix, tmp_path):
    model, other = nn.Sequential(nn.Linear(4, 4), Keeping(kept)), nn.Sequential(nn.Linear(4, 4), Keeping("another"))
    save_weights(model, tmp_path / f"model{suffix}")
    load_weights(other, tmp_path / f"model{suffix}")
    assert alike(other[1].kept, kept)
    assert torch.equal(other[1].weight, model[1].weight)


def test_a_tensor_may_have_another_shape_later(tmp_path):
    save_weights(Keeping(torch.zeros(9)), tmp_path / "model.safetensors")
    load_weights(other := Keeping(torch.zeros(2)), tmp_path / "model.safetensors")
    assert other.kept.shape == (9,)


def test_a_file_with_the_plain_state_dict_loads_without_brim(tmp_path):
    save_weights(Keeping({"n": 3}), tmp_path / "model.pt")
    other = Keeping(None)
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert other.kept == {"n": 3}


class Own:
    pass


@pytest.mark.parametrize(
    "kept",
    [Own(), {"own": [Own()]}, np.ones(2), lambda: 1, open],
    ids=["an object", "one within", "an array", "a function", "a built-in"],
)
def test_what_could_not_be_read_again_is_refused_before_training(kept, tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), Keeping(kept))
    with pytest.raises(ConfigError, match="get_extra_state of 1 returns something that cannot be saved"):
        brim.Trainer(model, (X, Y), loss_fn=nn.MSELoss(), device="cpu", run_dir=tmp_path / "run").fit()
    assert not (tmp_path / "run").exists()


def test_one_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("brim.engine.state.extra_state.MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match="cannot be saved"):
        check_extra_state(Keeping([torch.ones(1000)]))


def test_a_file_cannot_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (json.loads, ("1",))

    save_weights(model := Keeping({"n": 1}), tmp_path / "model.safetensors")
    torch.save(Evil(), evil := io.BytesIO())
    save_file(
        load_file(tmp_path / "model.safetensors"),
        tmp_path / "model.safetensors",
        {"format": "pt", KEY: base64.b64encode(evil.getvalue()).decode()},
    )
    with pytest.raises(RunFolderError, match="cannot load weights"):
        load_weights(model, tmp_path / "model.safetensors")


class Steps(nn.Module):
    """Counts what it has trained on, and computes with the count."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 1)
        self.seen = 0

    def forward(self, x):
        self.seen += self.training * len(x)
        return self.inner(x) * (1 + self.seen / 1000)

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


class Stop(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if step == 7:
            trainer.stop("for a while")


def train(folder, resume=None, callbacks=(), **settings):
    trainer = brim.Trainer(
        model := Steps(), brim.Loader((X, Y), batch_size=8), loss_fn=nn.MSELoss(), device="cpu", threads=1, epochs=3,
        run_dir=folder, callbacks=callbacks, **settings,
    )  # fmt: skip
    trainer.fit(resume=resume, save_model=True, model_path=f"{folder}.safetensors")
    return model


def test_it_is_in_checkpoints_and_in_the_trained_model():
    whole = train("whole")
    train("run", callbacks=[Stop()])
    resumed = train("run", resume="run")
    assert resumed.seen == whole.seen == 3 * len(X)
    assert torch.equal(resumed.inner.weight, whole.inner.weight)
    assert brim.load("run", Steps()).seen == whole.seen
    load_weights(saved := Steps(), Path("run.safetensors"))
    assert saved.seen == whole.seen


def test_it_is_in_the_best_weights():
    class Verdicts:
        monitor, higher_is_better = "score", False

        def __init__(self):
            self.seen = []

        def evaluate(self, model):
            self.seen.append(model.seen)
            return {"score": float(len(self.seen))}

    data = Verdicts()
    model = train("run", eval_data=data)
    assert model.seen == data.seen[0] == len(X)
    assert brim.load("run", Steps()).seen == data.seen[0]


def test_other_extra_state_is_another_model(tmp_path):
    save_weights(model := Keeping({"n": 1}), tmp_path / "model.safetensors")
    assert holds_weights(tmp_path / "model.safetensors", model)
    model.kept = {"n": 2}
    assert not holds_weights(tmp_path / "model.safetensors", model)
